"""Measure the operator calls that another run has recorded: `flagperf run operators --from RUN`.

In this order: a row, the work of a call (what it needs at least, how its output is checked), attention.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from flagperf.api import OperatorCall, RecordedRanks, Recording
from flagperf.errors import Unsupported
from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import host_memory_problem
from flagperf_cases.operators.recorded_calls import (
    NOT_TIMED,
    describe,
    find_operator,
    held_bytes,
    held_elements,
    make_arguments,
    plain_name,
    product_dtype,
    sort_out,
    tensor_arguments,
)

ROW, NOT_TIMED_ROW = "recorded", "recorded, not timed"

PEAK_ROWS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
}

CACHES = 4
"""A call that moves as much as so many caches does not find its inputs there."""


def replay(ctx: Context, recording: Recording) -> None:
    """Make every call of one step a row, with exactly the shapes, strides, types and arguments that it had."""
    (part,) = recording.parts
    calls, others = sort_out(part)
    # Products of float32 are computed as in the recorded run where this card can, and each row says how.
    precision = "tf32" if recording.precision == "tf32" else "fp32"
    try:
        ctx.use_precision(precision)
    except Unsupported:
        precision = "fp32"
    gc.freeze()  # memory is collected around every row, and what was imported by now is not looked through again
    with ctx.measured(planned_steps=len(calls)):
        for number, call in enumerate(calls):
            _measure(ctx, part, call, number, precision)
        for other in others:
            labels = {"operator": other.operator, "per_step": per_step(other.count, part)}
            ctx.row(NOT_TIMED_ROW, labels, [], "s", problem=NOT_TIMED[other.why])


def _measure(ctx: Context, part: RecordedRanks, call: OperatorCall, number: int, precision: str) -> None:
    def prepare() -> Timed:
        ctx.use_precision(precision)
        _check_memory(ctx, held_bytes(call, part))
        work = prepare_work(call, part, ctx.device, seed=number)
        cache_bytes = ctx.cache_bytes()
        is_cold = cache_bytes is not None and work.bytes >= CACHES * cache_bytes
        cache = "unknown" if cache_bytes is None else "cold" if is_cold else "hot"
        # Products are bounded by the card's peak in their type, and all by its memory.
        limits = {} if work.flops else {"bytes": "memory_bandwidth"}
        if work.flops and (row := PEAK_ROWS.get(product_dtype(call, part))):
            limits = {"flops": precision if row == "fp32" else row, "bytes": "memory_bandwidth"}

        def check(output: Any) -> dict[str, str]:
            try:
                return {**work.check(output), "cache": cache, "float32": precision}
            except ValueError as error:
                raise WrongOutput(str(error)) from None

        return Timed(
            call=work.call,
            check=check,
            before=work.before,
            flops=work.flops,
            bytes=work.bytes,
            limits=limits,
        )

    labels = {
        "operator": call.operator,
        "arguments": describe(call, part),
        "per_step": per_step(call.count, part),
        "call": number,
    }
    ctx.timed_row(ROW, labels, prepare)


def per_step(count: int, part: RecordedRanks) -> str:
    """Write how often a step makes the call. It is not a whole number where the steps differ."""
    return f"{count / part.steps:.6g}"


def _check_memory(ctx: Context, needed: int) -> None:
    """Refuse what does not fit before it is allocated: a machine that runs out of memory may end the worker."""
    if problem := host_memory_problem(ctx, needed):
        raise MemoryError(problem)
    available = ctx.memory_bytes()
    if available is not None and needed > available:
        raise MemoryError(f"its arguments have {needed} bytes, and the device has {available}")


# --- work -------------------------------------------------------------------------------------------------------------

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
    """Takes the last output. Raise ValueError where it is wrong."""
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
    if attention:
        flops = attention.flops()
    elif operator._schema.name in ("aten::linear", "aten::matmul"):  # other operators, unless in inference_mode
        flops = 2 * int(output.numel()) * int(args[0].shape[-1])
    else:  # torch's own formulas: its counter would import its compiler, which takes seconds
        formula = flop_registry.get(operator._overloadpacket)
        flops = int(formula(*args, **kwargs, out_val=output)) if formula else 0
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


def _changed(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that the operator writes in place; `out=` is not read."""
    for number, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from _tensors(given)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))


def _least_bytes(operator: Any, args: list[Any], kwargs: dict[str, Any], output: Any) -> int:
    """Count every input read once and every output written once."""
    schema = operator._schema
    name = plain_name(schema.name)
    read: list[torch.Tensor] = []
    for number, argument in enumerate(schema.arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        is_read = not argument.is_out and not (is_written and name in OVERWRITING)
        if is_read and not SHAPED_LIKE.fullmatch(name):
            read += _tensors(args[number] if number < len(args) else kwargs.get(argument.name))
    given, written = list(_tensors([args, kwargs])), list(_changed(operator, args, kwargs))
    written += [kwargs[each.name] for each in schema.arguments if each.is_out and each.name in kwargs]
    written += [each for each in _tensors(output) if not any(each is known for known in given)]
    if name in SELECTING and read:
        first = next(_tensors(args))
        others = [_bytes_of(each) for each in _tensors([args[1:], kwargs]) if each.is_floating_point()]
        limit = max([*others, *(_bytes_of(each) for each in written if each is not first)], default=0)
        return sum(min(_bytes_of(each), limit) if each is first else _bytes_of(each) for each in [*read, *written])
    return sum(map(_bytes_of, [*read, *written]))


def _bytes_of(tensor: torch.Tensor) -> int:
    """Count the bytes of a tensor. A row that is broadcast is read once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0]
    return int(math.prod(sizes) * tensor.element_size())


def _checker(
    call: OperatorCall, part: RecordedRanks, seed: int, attention: Attention | None, flops: int
) -> Callable[[Any], dict[str, str]]:
    """Return a check: where the host's result is finite, the device's has to be. The host computes in float64 where it
    can."""
    operator = find_operator(call.operator)

    def facts_of(output: Any) -> dict[str, str]:
        is_random = attention.has_dropout if attention else torch.Tag.nondeterministic_seeded in operator.tags
        if is_random:
            return {"check": "none: random"}
        given = [part.tensors[argument.index] for argument in tensor_arguments(call)]
        if sum(map(held_elements, given)) > CHECKED_ELEMENTS or flops > CHECKED_FLOPS:
            return {"check": "none: too large for the host"}
        expected, how = _on_host(operator, *make_arguments(call, part, "cpu", seed))
        if expected is None:
            return {"check": f"none: the host cannot: {how}"}
        pairs = [(found.cpu(), right) for found, right in zip(_tensors(output), _tensors(expected), strict=True)]
        error = max([_compare(found, right) for found, right in pairs], default=0.0)
        return {"check": f"finite where the host's {how} is", "error": f"{error:.2g}"}

    return facts_of


def _on_host(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, str]:
    """Return the result and its type; or None and why there is none."""

    def widened(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    try:
        wide, wide_named = tree_map(widened, (args, kwargs))
        return _runner(operator, wide, wide_named)[0](), "float64"
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):  # it takes one type only
        pass
    try:
        return _runner(operator, args, kwargs)[0](), "result in the same type"
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError) as error:
        return None, str(error).splitlines()[0][:100]


def _compare(found: torch.Tensor, right: torch.Tensor) -> float:
    """Return the error relative to the largest element, 0 where there is nothing to compare. Raise ValueError for
    another shape, and for what is finite on the host only."""
    if found.shape != right.shape:
        raise ValueError(f"the output has shape {tuple(found.shape)}, the host's {tuple(right.shape)}")
    if found.is_floating_point() and right.is_floating_point():
        # What is finite in float64 may be beyond the output's type.
        wrong = ~found.isfinite() & right.to(found.dtype).isfinite()
        if wrong.any():
            raise ValueError(f"{int(wrong.sum())} of {wrong.numel()} elements are not finite, on the host they are")
    found, right = found.double(), right.double()
    both = found.isfinite() & right.isfinite()
    largest = float(right[both].abs().max()) if bool(both.any()) else 0.0
    return float((found - right)[both].abs().max()) / largest if largest else 0.0


# --- attention --------------------------------------------------------------------------------------------------------

_PREFIX = "aten::_scaled_dot_product_"


class Attention(msgspec.Struct, frozen=True):
    """Calls attention by names, which the kernels have in common. Their order they have not."""

    given: dict[str, Any]
    is_backward: bool

    def call(self) -> Callable[[], Any]:
        if not self.is_backward:
            return self._forward
        inputs = [self.given[name].requires_grad_() for name in ("query", "key", "value")]
        with torch.enable_grad():
            output = self._forward()
        gradient = self.given.get("grad_out", self.given.get("grad_out_"))
        return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    @property
    def has_dropout(self) -> bool:
        return bool(self.given.get("dropout_p"))

    def flops(self) -> int:
        """Count two products of queries and keys, half of them where it is causal; backward has five."""
        query, key, value = (self.given[name].shape for name in ("query", "key", "value"))
        products = 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        halved = products // 2 if self.given.get("is_causal") else products
        return int(halved * 5 // 2 if self.is_backward else halved)

    def _forward(self) -> torch.Tensor:
        query, key = self.given["query"], self.given["key"]
        mask = self.given.get("attn_mask", self.given.get("attn_bias"))
        more = {"enable_gqa": True} if query.shape[-3] != key.shape[-3] else {}
        return scaled_dot_product_attention(
            query,
            key,
            self.given["value"],
            attn_mask=mask,
            dropout_p=self.given.get("dropout_p", 0.0),
            is_causal=self.given.get("is_causal", False),
            scale=self.given.get("scale"),
            **more,
        )


def as_attention(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Attention | None:
    """Return None for other operators."""
    name = operator._schema.name
    if not name.startswith(_PREFIX):
        return None
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return Attention(given, is_backward=name.endswith("_backward"))
