"""Reads the weights out of untrusted pickles without running any code that they name.

Settings of the program that wrote a pickle (an argparse.Namespace, classes of that program) become empty placeholders;
a pickle that wants to call anything is refused. Importable without torch.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from flagperf.errors import BadInput
from flagperf_cases.torch_files import ShapeUnpickler, read_pickle


def safe_load(path: Path, advice: str, *, mmap: bool = False) -> Any:
    """Loads with torch, all tensors on the host. With `mmap` tensors are read lazily."""
    import torch

    try:
        with _allow_placeholders(path, advice):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, TypeError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read the weights {path}: {short_reason(error)}; {advice}") from None


def check_mappable(path: Path, advice: str) -> None:
    """Refuses before the run what `safe_load` with mmap could not load: torch maps only its newer (zip) format."""
    if not zipfile.is_zipfile(path):
        raise BadInput(
            f"{path} is in the format of torch before 1.6; load it with torch and save it again, or {advice}"
        )


def short_reason(error: Exception) -> str:
    """One line, without torch's advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)|(it calls .* is not data)", str(error))
    if refused:
        return refused.group(2) or f"it names {refused.group(1)}, which is not data"
    return str(error).strip().partition("\n")[0] or type(error).__name__


DATA_CONSTRUCTORS = (
    "_codecs.encode",
    "builtins.set",
    "builtins.bytearray",
    "builtins.complex",
    "collections.Counter",
    "torch.Size",
    "torch.device",
    "numpy.core.multiarray.",
    "numpy._core.multiarray.",
    "numpy.dtype",
    "numpy.ndarray",
)
"""What settings and random number states are pickled with. Their placeholders may be called, and do nothing."""


class _Placeholder:
    """An object that keeps nothing of what the pickle says about it."""

    def __new__(cls, *_arguments: Any) -> _Placeholder:
        return object.__new__(cls)

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _RefusesCalls(type):
    """Pickle creates objects of a class without calling the class. A pickle that does call something wants code run."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it calls {cls.__module__}.{cls.__qualname__}, which is not data")


def _placeholder(module: str, name: str) -> type:
    metaclass = type if f"{module}.{name}".startswith(DATA_CONSTRUCTORS) else _RefusesCalls
    return metaclass(name, (_Placeholder,), {"__module__": module, "__qualname__": name})


class PlaceholderUnpickler(ShapeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except pickle.UnpicklingError:
            # torch.save writes protocol 2, which has the names of Python 2.
            return _placeholder("builtins" if module == "__builtin__" else module, name)


def _allow_placeholders(path: Path, advice: str) -> contextlib.AbstractContextManager[Any]:
    """For torch's own reader: every name in the file is allowed, but only data constructors may be called."""
    from torch import serialization

    if not hasattr(serialization, "get_unsafe_globals_in_checkpoint"):  # torch before 2.6 reads plain data only
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = serialization.safe_globals(_placeholders_in(path, advice))
    return context


def _placeholders_in(path: Path, advice: str) -> list[Any]:
    """For every name in the file that is not a tensor's. torch lists these too, but not for files older than 1.6."""
    found: dict[tuple[str, str], Any] = {}

    class Recording(PlaceholderUnpickler):
        def find_class(self, module: str, name: str) -> Any:
            kind = super().find_class(module, name)
            if isinstance(kind, type) and issubclass(kind, _Placeholder):
                return found.setdefault((module, name), kind)
            return kind

    read_pickle(path, advice, Recording)
    return list(found.values())
