"""A recorded call ready to be timed: with its inputs, what it needs at least, and how its output is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from flagperf.api import OperatorCall, RecordedRanks, RecordedTensor
from flagperf_cases.operators.recorded_attention import Attention, as_attention
from flagperf_cases.operators.recorded_calls import find_operator, tensor_arguments
from flagperf_cases.operators.recorded_inputs import held_elements, make_arguments, plain_name

OVERWRITING = frozenset(
    ("copy", "fill", "zero", "bernoulli", "normal", "uniform", "random", "exponential", "geometric", "log_normal")
)
"""Operators in place that do not read what they write: it need not be restored before a call."""

SELECTING = frozenset(
    (
        "embedding", "index", "unsafe_index", "index_select", "gather", "take",
        "index_put", "index_put_impl", "index_add", "index_copy", "scatter", "scatter_add", "scatter_reduce",
    )
)  # fmt: skip
"""Operators that read or write as many elements of their first tensor as others have."""

SHAPED_LIKE = re.compile(r"new_.*|.*_like")
"""Operators that take the shape or the type of a tensor and do not read it."""

CHECKED_ELEMENTS, CHECKED_FLOPS = 1 << 22, 1 << 32
"""Larger calls are not repeated on the host."""


class Work(msgspec.Struct, frozen=True):
    call: Callable[[], Any]
    before: Callable[[], None] | None
    """Restores what a call changes. Not timed."""
    check: Callable[[Any], dict[str, str]]
    """Takes the last output. Raises ValueError where it is wrong."""
    flops: int
    bytes: int


def prepare_work(call: OperatorCall, part: RecordedRanks, device: str, seed: int) -> Work:
    operator = find_operator(call.operator)
    args, kwargs = make_arguments(call, part, device, seed)
    run, attention = _runner(operator, args, kwargs)
    changed = [] if attention or plain_name(call.operator) in OVERWRITING else list(_changed(operator, args, kwargs))
    kept = [each.clone() for each in changed]

    def restore() -> None:
        for tensor, value in zip(changed, kept, strict=True):
            tensor.copy_(value)

    output = run()
    restore()
    flops = attention.flops() if attention else _flops(operator, args, kwargs, output)
    return Work(
        call=run,
        before=restore if changed else None,
        check=_checker(call, part, seed, attention, flops),
        flops=flops,
        bytes=_least_bytes(operator, args, kwargs, output),
    )


def _runner(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Callable[[], Any], Attention | None]:
    attention = as_attention(operator, args, kwargs)
    if attention is not None:
        return attention.call(), attention
    return lambda: operator(*args, **kwargs), None


def _flops(operator: Any, args: list[Any], kwargs: dict[str, Any], output: Any) -> int:
    """By torch's own formulas. torch's counter would import its compiler, which takes seconds."""
    if operator._schema.name in ("aten::linear", "aten::matmul"):  # these are other operators, unless in inference_mode
        return 2 * int(output.numel()) * int(args[0].shape[-1])
    formula = flop_registry.get(operator._overloadpacket)
    return int(formula(*args, **kwargs, out_val=output)) if formula else 0


def _changed(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Tensors that the operator writes in place; `out=` is not read."""
    for number, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from _tensors(given)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))


# --- least traffic --------------------------------------------------------------------------------------------------


def _least_bytes(operator: Any, args: list[Any], kwargs: dict[str, Any], output: Any) -> int:
    """Every input is read once and every output written once."""
    schema = operator._schema
    name = plain_name(schema.name)
    read, written = list(_read(operator, args, kwargs, name)), list(_written(operator, args, kwargs, output))
    if name in SELECTING and read:
        first = next(_tensors(args))
        others = [_bytes_of(each) for each in _tensors([args[1:], kwargs]) if each.is_floating_point()]
        limit = max([*others, *(_bytes_of(each) for each in written if each is not first)], default=0)
        return sum(min(_bytes_of(each), limit) if each is first else _bytes_of(each) for each in [*read, *written])
    return sum(map(_bytes_of, [*read, *written]))


def _read(operator: Any, args: list[Any], kwargs: dict[str, Any], name: str) -> Iterator[torch.Tensor]:
    for number, argument in enumerate(operator._schema.arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        is_read = not argument.is_out and not (is_written and name in OVERWRITING)
        if is_read and not SHAPED_LIKE.fullmatch(name):
            yield from _tensors(args[number] if number < len(args) else kwargs.get(argument.name))


def _written(operator: Any, args: list[Any], kwargs: dict[str, Any], output: Any) -> Iterator[torch.Tensor]:
    given = list(_tensors([args, kwargs]))
    changed = list(_changed(operator, args, kwargs))
    changed += [kwargs[each.name] for each in operator._schema.arguments if each.is_out and each.name in kwargs]
    yield from changed
    yield from (each for each in _tensors(output) if not any(each is known for known in given))


def _bytes_of(tensor: torch.Tensor) -> int:
    """A row that is broadcast is read once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0]
    return int(math.prod(sizes) * tensor.element_size())


# --- check ----------------------------------------------------------------------------------------------------------


def _checker(
    call: OperatorCall, part: RecordedRanks, seed: int, attention: Attention | None, flops: int
) -> Callable[[Any], dict[str, str]]:
    """Where the host's result is finite, the device's has to be. The host computes in float64 where it can."""
    operator = find_operator(call.operator)

    def facts_of(output: Any) -> dict[str, str]:
        is_random = attention.has_dropout if attention else torch.Tag.nondeterministic_seeded in operator.tags
        if is_random:
            return {"check": "none: random"}
        if sum(held_elements(tensor) for tensor in _given(call, part)) > CHECKED_ELEMENTS or flops > CHECKED_FLOPS:
            return {"check": "none: too large for the host"}
        expected, how = _on_host(operator, *make_arguments(call, part, "cpu", seed))
        if expected is None:
            return {"check": f"none: the host cannot: {how}"}
        pairs = [(found.cpu(), right) for found, right in zip(_tensors(output), _tensors(expected), strict=True)]
        for found, right in pairs:
            _require_finite(found, right)
        error = max((_relative_error(found, right) for found, right in pairs), default=0.0)
        return {"check": f"finite where the host's {how} is", "error": f"{error:.2g}"}

    return facts_of


def _given(call: OperatorCall, part: RecordedRanks) -> Iterator[RecordedTensor]:
    return (part.tensors[argument.index] for argument in tensor_arguments(call))


def _on_host(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, str]:
    """The result and its type; or None and why there is none."""
    try:
        wide, wide_named = tree_map(_widened, (args, kwargs))
        return _runner(operator, wide, wide_named)[0](), "float64"
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):  # it takes one type only
        pass
    try:
        return _runner(operator, args, kwargs)[0](), "result in the same type"
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError) as error:
        return None, str(error).splitlines()[0][:100]


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _require_finite(found: torch.Tensor, right: torch.Tensor) -> None:
    if found.shape != right.shape:
        raise ValueError(f"the output has shape {tuple(found.shape)}, the host's {tuple(right.shape)}")
    if not found.is_floating_point() or not right.is_floating_point():
        return
    # What is finite in float64 may be beyond the output's type.
    wrong = ~found.isfinite() & right.to(found.dtype).isfinite()
    if wrong.any():
        raise ValueError(f"{int(wrong.sum())} of {wrong.numel()} elements are not finite, on the host they are")


def _relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """Of the largest element. 0 where there is nothing to compare."""
    found, right = found.double(), right.double()
    both = found.isfinite() & right.isfinite()
    largest = float(right[both].abs().max()) if bool(both.any()) else 0.0
    return float((found - right)[both].abs().max()) / largest if largest else 0.0
