"""OperatorLibrary: other implementations of torch's operators, which the case `operators` compares with torch's own."""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

TORCH_LIBRARIES = ("eager", "compile")
"""What is compared without a plugin: torch's own operators, and torch.compile. No library has one of these names."""


class OperatorLibrary(abc.ABC):
    """Replaces operators of torch, for as long as it is enabled. Constructing one imports neither torch nor the
    library."""

    name: ClassVar[str]
    """The word for `operators.libraries`, in lower case."""

    distribution: ClassVar[str] = ""
    """The distribution of the library itself, whose version is recorded with every row; "": the plugin's own."""

    @abc.abstractmethod
    def enable(self) -> AbstractContextManager[Any]:
        """Called in the worker, for every row. While it is open, calls of torch reach the library's operators; after it
        they reach torch's again, so that both take turns in one process. What it raises is the problem of the row.
        Core looks at torch's dispatcher: an operator of which nothing is replaced is a row that says so."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Called in the worker. For operators that no call of torch reaches (a fused one, such as `rope`): name of the
        operator in `cases show operators` -> a function with the same arguments, called in place of it."""
        return {}
