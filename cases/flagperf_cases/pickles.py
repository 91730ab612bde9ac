"""Pickles whose weights are wanted and whose other contents are not, read without running anything that they name.

Settings of the program that wrote one (an argparse.Namespace, classes of that program) become empty stand-ins; what
would have to be called is refused. Importable without torch.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from flagperf.errors import BadInput
from flagperf_cases.weights import ShapeUnpickler, read_pickle


def load_inert(path: Path, advice: str, *, mmap: bool = False) -> Any:
    """With torch, all tensors on the host; with `mmap` they are read when they are used."""
    import torch

    try:
        with _allowed(path, advice):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, TypeError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read the weights {path}: {first_line(error)}; {advice}") from None


def refuse_unmappable(path: Path, advice: str) -> None:
    """What `load_inert` with mmap would fail at in a run: torch maps files in its newer form alone."""
    if not zipfile.is_zipfile(path):
        raise BadInput(f"{path} is in the form of torch before 1.6; load it with torch and save it again, or {advice}")


def first_line(error: Exception) -> str:
    """Without torch's advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)|(it calls .* is not data)", str(error))
    if refused:
        return refused.group(2) or f"it names {refused.group(1)}, which is not data"
    return str(error).strip().partition("\n")[0] or type(error).__name__


MAKERS_OF_DATA = (
    "_codecs.encode", "builtins.set", "builtins.bytearray", "builtins.complex", "collections.Counter", "torch.Size",
    "torch.device", "numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.dtype", "numpy.ndarray",
)  # fmt: skip
"""What settings and states of random numbers are pickled with. Their stand-ins may be called, and do nothing."""


class _StandIn:
    """An object that keeps nothing of what the pickle says of it."""

    def __new__(cls, *_arguments: Any) -> _StandIn:
        return object.__new__(cls)

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _NeverCalled(type):
    """Objects of a class are made without calling it. A pickle that does call something is after what that does."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it calls {cls.__module__}.{cls.__qualname__}, which is not data")


def _stand_in(module: str, name: str) -> type:
    kind = type if f"{module}.{name}".startswith(MAKERS_OF_DATA) else _NeverCalled
    return kind(name, (_StandIn,), {"__module__": module, "__qualname__": name})


class StandInUnpickler(ShapeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except pickle.UnpicklingError:
            # torch.save writes protocol 2, which has the names of Python 2.
            return _stand_in("builtins" if module == "__builtin__" else module, name)


def _allowed(path: Path, advice: str) -> contextlib.AbstractContextManager[Any]:
    """For torch's own reader: everything that the file names may be met, and only makers of data be called."""
    from torch import serialization

    if not hasattr(serialization, "get_unsafe_globals_in_checkpoint"):  # torch before 2.6 reads plain data only
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = serialization.safe_globals(_stand_ins_of(path, advice))
    return context


def _stand_ins_of(path: Path, advice: str) -> list[Any]:
    """Of all that the file names but tensors. torch tells these names too, though not of files older than 1.6."""
    found: dict[tuple[str, str], Any] = {}

    class Noting(StandInUnpickler):
        def find_class(self, module: str, name: str) -> Any:
            kind = super().find_class(module, name)
            if isinstance(kind, type) and issubclass(kind, _StandIn):
                return found.setdefault((module, name), kind)
            return kind

    read_pickle(path, advice, Noting)
    return list(found.values())
