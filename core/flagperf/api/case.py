"""Cases: what `flagperf_cases` returns, and the functions that a case.toml names. All else about a case is in its
case.toml."""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec


class CaseReference(msgspec.Struct, frozen=True):
    """`target` is `module:function`, imported in the worker only; the function takes the worker's Context."""

    target: str
    """`module:function`."""
    manifest: Path
    """The path of its case.toml."""


class DataFile(msgspec.Struct, frozen=True):
    """A file that a case read, named relative to --data-dir. A case's `check_files` gives these."""

    path: str
    """Relative to --data-dir."""
    num_bytes: int
    """Its size."""
    sha256: str
    """Of its content, in lower-case hexadecimal."""


class CheckFiles(Protocol):
    """`check_files` of a case.toml, `module:function`: look at values and data before anything is started.

    Called by the agent on every node, without torch. `data_dir` is --data-dir or None; `values` is the resolved tree
    of the run. Gives every file that the run will read; those of the first node are recorded. Raises BadInput for a
    file or a value that cannot be used: what, where, what to do.
    """

    def __call__(self, data_dir: Path | None, values: dict[str, Any], /) -> list[DataFile]: ...


class ListContents(Protocol):
    """`listing` of a case.toml, `module:function`: what the case consists of, for `flagperf cases show`.

    Called by the parent, without torch and without cards. Gives tables: title -> rows, each column -> text, with the
    same columns in all rows of a table.
    """

    def __call__(self) -> dict[str, list[dict[str, str]]]: ...


class EstimateMemory(Protocol):
    """`estimate` of a case.toml, `module:function`: the memory of the fullest rank, part by part, in bytes.

    Called by the parent for `flagperf plan`, without torch and without cards. `values` is the resolved tree. Gives
    part -> bytes of the tensors that are known before the launch; core adds them up and compares them with the card.
    Raises BadInput for values that do not go together.
    """

    def __call__(self, values: dict[str, Any], /) -> dict[str, int]: ...


# OperatorLibrary: other implementations of torch's operators, which the case `operators` compares with torch's own.


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
