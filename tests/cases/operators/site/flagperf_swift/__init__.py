"""A library of operators as an outside plugin: it replaces some of torch's on the CPU, right and wrong ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from flagperf.api import OperatorLibrary
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


class Swift(OperatorLibrary):
    name = "swift"
    distribution = "flagperf-swift"

    @contextlib.contextmanager
    def enable(self) -> Iterator[None]:
        import torch

        library = torch.library.Library("aten", "IMPL")
        library.impl("relu", lambda x: x.clamp(min=0), "CPU")
        library.impl("abs", lambda x: x.clone(), "CPU")  # wrong
        library.impl("exp", _failing, "CPU")
        try:
            yield
        finally:
            library._destroy()

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"swiglu": lambda gate, up: gate / (1 + (-gate * 1.4426950408889634).exp2()) * up}


def _failing(x: Any) -> Any:
    raise ValueError("the library's own words")


@hookimpl
def flagperf_operator_libraries() -> list[OperatorLibrary]:
    return [Swift()]
