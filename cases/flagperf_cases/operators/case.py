"""Measure single operators: eager, compiled, and by libraries that replace them. See README.md.

In this order: a row, its tensors with the call that is timed and the check of its output, and who computes it: torch,
torch.compile, or a library that replaces operators of torch.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from flagperf.api import OperatorLibrary
from flagperf.errors import Unsupported
from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import host_memory_problem, num_turns
from flagperf_cases.operators.data import Row, rows
from flagperf_cases.operators.draws import make_tensor
from flagperf_cases.operators.groups import bind_torch
from flagperf_cases.operators.operator import TORCH_NAMES, Operand, Operator
from flagperf_cases.operators.replay import replay

CACHES = 2
"""A buffer of so many last-level caches is written between calls that shall find nothing in the cache."""
DEFAULT_FLUSH_BYTES = 1 << 29
"""Where nobody knows the cache: more than any card had."""


def run(ctx: Context) -> None:
    recording = ctx.recording()
    if recording is not None:
        replay(ctx, recording)
        return
    bind_torch()
    values = vars(ctx.config.operators)
    planned = list(rows(values))
    # Memory is collected around every row; what was imported by now is not looked through again, which takes 0.1 s.
    gc.freeze()
    implementations = [make_implementation(name, ctx) for name in values["libraries"]]
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned) * len(implementations)):
        for devices in ctx.turns():
            for row in planned:
                measure(ctx, row, implementations, devices)


def measure(ctx: Context, row: Row, implementations: list[Implementation], devices: str) -> None:
    """Measure all implementations of one row, in turns, with the same operands."""
    operands = Operands(row, ctx.device)
    # What is limited by arithmetic in some shapes has its roofline; all else moves data.
    limits = {"flops": row.dtype} if row.operator.flops else {}

    def prepare(implementation: Implementation) -> Timed:
        ctx.use_precision("fp32")
        _check_memory(ctx, row)
        measured = Measured(row, operands, implementation)
        flops, num_bytes = row.operator.work(row.sizes, row.dtype, row.direction)
        return Timed(
            call=measured.call(),
            check=measured.check,
            flops=flops,
            bytes=num_bytes,
            limits={**limits, "bytes": "memory_bandwidth"},
            before=_before(ctx, row, measured),
            within=measured.within,
        )

    def alternative(implementation: Implementation) -> tuple[dict[str, Any], Any]:
        return {**row.labels, "library": implementation.name, "devices": devices}, lambda: prepare(implementation)

    ctx.timed_rows("operators", [alternative(implementation) for implementation in implementations])


def _check_memory(ctx: Context, row: Row) -> None:
    """Refuse what does not fit before it is allocated: a machine that runs out of memory may end the worker."""
    of_device, of_host = ctx.memory_bytes(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = row.memory_bytes + row.check_bytes
    if problem := host_memory_problem(ctx, needed):
        raise MemoryError(problem)
    if of_device is not None and row.memory_bytes > of_device:
        raise MemoryError(f"it needs {row.memory_bytes} bytes, and the device has {of_device}")
    if needed > of_host:
        raise MemoryError(f"with its check it needs {needed} bytes, and the host has {of_host}")


def _before(ctx: Context, row: Row, measured: Measured) -> Any:
    """Return what is done before every call: operands as they were, nothing of them in the cache."""
    if row.cache != "cold":
        return measured.restore if row.operator.mutates else None
    size = CACHES * (ctx.cache_bytes() or DEFAULT_FLUSH_BYTES // CACHES)
    buffer = torch.empty(size, dtype=torch.int8, device=ctx.device)

    def before() -> None:
        if row.operator.mutates:
            measured.restore()
        buffer.add_(1)

    return before


# --- a row, made real -------------------------------------------------------------------------------------------------

CHECKED_ELEMENTS = 1 << 22
"""Of a row that can be cut, parts with about so many elements are checked, at least one. The host would compute the
whole of the largest for minutes."""
MIN_PARTS = 64
"""At least, where these have not many times as many elements."""

SEED = 20240501


class Operands:
    """Holds the tensors of a row, made when the first implementation asks for them."""

    def __init__(self, row: Row, device: str) -> None:
        self.row, self.device = row, device

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        return [
            make_tensor(operand, self.row.dtype, self.device, SEED + index)
            for index, operand in enumerate(self.row.operator.operands(**self.row.sizes))
        ]

    @functools.cached_property
    def gradients(self) -> list[torch.Tensor]:
        """Return those of the outputs: random, like the operands."""
        return [
            make_tensor(Operand(output.shape, output.dtype), self.row.dtype, self.device, SEED + 100 + index)
            for index, output in enumerate(self.row.operator.outputs_of(self.row.sizes))
        ]

    @functools.cached_property
    def originals(self) -> list[torch.Tensor]:
        """Return copies, where the operator changes its operands."""
        return [each.clone() for each in self.tensors] if self.row.operator.mutates else self.tensors


class Measured:
    """Joins an implementation of the operator with the operands of a row."""

    def __init__(self, row: Row, operands: Operands, implementation: Implementation) -> None:
        self.row, self.operator = row, row.operator
        self.implementation = implementation
        self.originals, self.operands = operands.originals, operands.tensors
        self.options = self.operator.options_of(row.sizes)
        self.fallbacks: list[str] = []
        self.gradients = operands.gradients if row.direction == "backward" else []
        implementation.refuse(self.operator, lambda: self._call_of(self.operator.call)())

    # --- what is timed ----------------------------------------------------------------------------------------------

    def call(self) -> Callable[[], Any]:
        with self.within():
            return self._call_of(self.implementation.function(self.operator))

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        with noticing_fallbacks(self.fallbacks), self.implementation.enabled():
            yield

    def restore(self) -> None:
        for operand, original in zip(self.operands, self.originals, strict=True):
            operand.copy_(original)

    def _call_of(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """Return what is timed. Before a backward, forward runs once, here: its graph is kept, and only gradients are
        computed in every call."""
        if self.row.direction == "forward":
            return functools.partial(function, *self.operands, **self.options)
        wanted = self.operator.gradients_of(self.row.sizes)
        leaves = [each.detach().requires_grad_(index in wanted) for index, each in enumerate(self.operands)]
        results = _tensors(function(*leaves, **self.options))
        inputs = [leaves[index] for index in wanted]
        return functools.partial(torch.autograd.grad, results, inputs, self.gradients, retain_graph=True)

    # --- what is checked --------------------------------------------------------------------------------------------

    def check(self, output: Any) -> dict[str, str]:
        """Return facts about the comparison. Raise WrongOutput."""
        if self.fallbacks:
            raise Unsupported(f"it falls back to the host: {self.fallbacks[0]}")
        found = _tensors(output)
        self._check_form(found)
        parts = self._parts(found)
        cut = self.operator.cut
        operands = [
            _on_host(each, cut.dim if cut else 0, parts if cut and index in cut.operands else None)
            for index, each in enumerate(self.originals)
        ]
        compared = [_on_host(each, cut.dim if cut else 0, parts) for each in found]
        with torch.no_grad():
            expected = self._expected(operands, parts)
        rule = self.operator.backward_rule if self.row.direction == "backward" else self.operator.rule
        assert rule is not None
        terms = self.operator.terms_of(self.row.sizes, self.row.direction)
        judgements = [rule.judge(*pair, operands, terms) for pair in zip(compared, expected, strict=True)]
        for judgement in judgements:
            if judgement.problem:
                raise WrongOutput(f"{judgement.problem}; allowed: {judgement.allowed}")
        worst = max(judgements, key=lambda each: each.error)
        whole, some = (sum(each.numel() for each in group) for group in (found, compared))
        version = {"version": self.implementation.version} if self.implementation.version else {}
        return {
            "error": f"{worst.error:.3g} of the tolerance",
            "tolerance": worst.allowed,
            "checked": f"{some} of {whole} elements",
            **version,
        }

    def _check_form(self, found: tuple[torch.Tensor, ...]) -> None:
        if self.row.direction == "backward":
            wanted = [self.operands[index] for index in self.operator.gradients_of(self.row.sizes)]
            forms = [(tuple(each.shape), each.dtype) for each in wanted]
        else:
            outputs = self.operator.outputs_of(self.row.sizes)
            forms = [(each.shape, getattr(torch, TORCH_NAMES[each.dtype_of(self.row.dtype)])) for each in outputs]
        if len(found) != len(forms):
            raise WrongOutput(f"{len(found)} outputs in place of {len(forms)}")
        for tensor, (shape, dtype) in zip(found, forms, strict=True):
            if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                raise WrongOutput(f"an output is {tuple(tensor.shape)} {tensor.dtype}, not {shape} {dtype}")
            if tensor.device != self.operands[0].device:
                raise WrongOutput(f"an output is on {tensor.device}: the operator fell back to the host")

    def _parts(self, found: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
        """Choose which parts are checked: always the last, mostly the first, and others between them. None: all."""
        cut = self.operator.cut
        if cut is None or not found[0].ndim:
            return None
        gradients = self.operator.gradients_of(self.row.sizes)
        if self.row.direction == "backward" and set(gradients) - set(cut.operands):
            return None  # a weight's gradient is a sum over all parts
        pieces = [*found, *(self.operands[index] for index in cut.operands)]
        count = min(each.shape[cut.dim] for each in pieces)
        size = max(sum(each.numel() for each in pieces) // count, 1)
        wanted = max(CHECKED_ELEMENTS // size, MIN_PARTS if MIN_PARTS * size <= 4 * CHECKED_ELEMENTS else 1)
        if wanted >= count:
            return None
        inner = torch.randint(0, count, (wanted - 1,), generator=torch.Generator().manual_seed(SEED))
        return torch.cat((inner, torch.tensor([0] * (wanted > 1) + [count - 1]))).unique()

    def _expected(self, operands: list[Any], parts: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        if self.operator.is_random:
            return tuple(operands[:1])
        widens = self.operator.widens or self.row.direction == "backward"
        widened = [_widened(each) if widens else each for each in operands]
        function = self.operator.reference or self.operator.call
        if self.row.direction == "forward":
            return _tensors(function(*widened, **self.options))
        wanted = self.operator.gradients_of(self.row.sizes)
        cut = self.operator.cut
        gradients = [_widened(_on_host(each, cut.dim if cut else 0, parts)) for each in self.gradients]
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_(index in wanted) for index, each in enumerate(widened)]
            results = _tensors(function(*leaves, **self.options))
            return tuple(torch.autograd.grad(results, [leaves[index] for index in wanted], gradients))


def _tensors(output: Any) -> tuple[torch.Tensor, ...]:
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def _on_host(tensor: torch.Tensor, dim: int, parts: torch.Tensor | None) -> torch.Tensor:
    """Return these parts. A tensor that has more along this dimension than others has as many times more in each."""
    found = tensor.detach()
    if parts is not None:
        size = found.shape[dim] // (int(parts[-1]) + 1)
        index = (parts[:, None] * size + torch.arange(size)).flatten()
        found = found.index_select(dim, index.to(found.device))
    return found.cpu()


# --- implementations --------------------------------------------------------------------------------------------------

Enabled = Callable[[], contextlib.AbstractContextManager[Any]]


class Implementation(msgspec.Struct, frozen=True):
    name: str
    function: Callable[[Operator], Callable[..., Any]]
    """What is called for an operator."""
    enabled: Enabled = contextlib.nullcontext
    """While it is open, that function computes as this implementation does."""
    version: str = ""
    refuse: Callable[[Operator, Callable[[], Any]], None] = lambda operator, call: None
    """Raise Unsupported if nothing of the operator is computed otherwise than by torch."""


def make_implementation(name: str, ctx: Context) -> Implementation:
    if name == "eager":
        return Implementation(name, lambda operator: operator.call)
    if name == "compile":
        return Implementation(name, _compiled)
    library = ctx.operator_library(name)
    version = library.distribution
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = f"{version} {importlib.metadata.version(version)}" if version else ""
    functions = functools.cache(library.functions)
    replaced = _replaced(library)

    def refuse(operator: Operator, call: Callable[[], Any]) -> None:
        if operator.name in functions():
            return
        called = _called(call)
        if isinstance(replaced, Exception):
            raise replaced
        if not called & replaced:
            names = ", ".join(sorted(called))
            raise Unsupported(f"{library.name} replaces nothing that {operator.name} calls ({names})")

    return Implementation(
        library.name,
        lambda operator: functions().get(operator.name, operator.call),
        library.enable,
        version,
        refuse,
    )


def _compiled(operator: Operator) -> Callable[..., Any]:
    """Compile again for every row: after some shapes torch would go back to eager without a word. Likewise, what cannot
    be compiled as a whole is an error, and not a mixture."""
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # the graph is kept for the next backward
    compiled: Callable[..., Any] = torch.compile(operator.call, fullgraph=True, dynamic=False)
    return compiled


def _replaced(library: OperatorLibrary) -> frozenset[str] | Exception:
    """Return the operators, without their overloads, that torch's dispatcher sends elsewhere while the library is
    enabled; or what it raised, which is the problem of each of its rows. One that does not go away again would be
    measured in torch's rows too: nothing can be compared then."""
    before = _dispatch_tables()
    try:
        with library.enable():
            now = _dispatch_tables()
    except Exception as error:  # noqa: BLE001  a plugin boundary
        return error
    gc.collect()  # some libraries are removed with the last reference to them
    if _dispatch_tables() != before:
        raise Unsupported(f"library {library.name} still replaces operators of torch after it was disabled")
    return frozenset(_base(name) for name, table in now.items() if before.get(name) != table)


def _dispatch_tables() -> dict[str, str]:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return {name: torch._C._dispatch_dump(name) for name in names}


def _base(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0]


def _called(call: Callable[[], Any]) -> frozenset[str]:
    """Return what torch is asked for by a call: its functions, and the operators that they consist of."""
    names: set[str] = set()

    class Functions(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.add(str(getattr(function, "__name__", "")))
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.add(_base(function.name()))
            return function(*args, **(kwargs or {}))

    with Functions(), Operators():
        call()
    return frozenset(names)


@contextlib.contextmanager
def noticing_fallbacks(found: list[str]) -> Iterator[None]:
    """Keep the first warning of a backend that lets the host compute what it lacks. The first warning is kept."""
    import warnings

    def keep(message: Any, *_: Any, **__: Any) -> None:
        if not found and any(words in str(message).lower() for words in ("fall back", "fallback", "falling back")):
            found.append(str(message).splitlines()[0])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = keep
        was_always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(was_always)
