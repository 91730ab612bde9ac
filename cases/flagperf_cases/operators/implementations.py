"""Who computes an operator: torch, torch.compile, or a library that replaces operators of torch."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from flagperf.api import OperatorLibrary
from flagperf.errors import Unsupported
from flagperf.worker import Context
from flagperf_cases.operators.operator import Operator

Enabled = Callable[[], contextlib.AbstractContextManager[Any]]


class Implementation(msgspec.Struct, frozen=True):
    name: str
    function: Callable[[Operator], Callable[..., Any]]
    """What is called for an operator."""
    enabled: Enabled = contextlib.nullcontext
    """While it is open, that function computes as this implementation does."""
    version: str = ""
    refuse: Callable[[Operator, Callable[[], Any]], None] = lambda operator, call: None
    """Raises Unsupported if nothing of the operator is computed otherwise than by torch."""


def make_implementation(name: str, ctx: Context) -> Implementation:
    if name == "eager":
        return Implementation(name, lambda operator: operator.call)
    if name == "compile":
        return Implementation(name, _compiled)
    return _of_library(ctx.operator_library(name))


def _compiled(operator: Operator) -> Callable[..., Any]:
    """Compiled anew for every row: after some shapes torch would go back to eager without a word. Likewise, what
    cannot be compiled as a whole is an error, and not a mixture."""
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # the graph is kept for the next backward
    compiled: Callable[..., Any] = torch.compile(operator.call, fullgraph=True, dynamic=False)
    return compiled


# --- libraries ------------------------------------------------------------------------------------------------------


def _of_library(library: OperatorLibrary) -> Implementation:
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
        _version(library),
        refuse,
    )


def _version(library: OperatorLibrary) -> str:
    if not library.distribution:
        return ""
    try:
        return f"{library.distribution} {importlib.metadata.version(library.distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return library.distribution


def _replaced(library: OperatorLibrary) -> frozenset[str] | Exception:
    """Operators, without their overloads, that torch's dispatcher sends elsewhere while the library is enabled; or what
    it raised, which is the problem of each of its rows. One that does not go away again would be measured in torch's
    rows too: nothing can be compared then."""
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
    """What torch is asked for by a call: its functions, and the operators that they consist of."""
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
    """Backends that let the host compute what they lack warn about it. The first warning is kept."""
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
