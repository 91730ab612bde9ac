"""Files that torch.save wrote, read without torch and without running any code that they name.

Each tensor is represented by its shape. No weight is read, but everything around the weights is checked: that each
tensor has as many bytes as it needs, that nothing is compressed (torch compresses nothing, so a small file that grows
when it is read is not torch's), and that nothing follows the end.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from flagperf.errors import BadInput
from flagperf_cases.data_files import require_file, shown

_LEGACY_HEAD = 3
"""Pickles that precede the state in a file of torch before 1.6: a magic number, a version, facts of the machine."""
_LEGACY_COUNT_BYTES = 8
"""Before each storage of such a file: how many items it has."""
_ZIP_BEGIN = b"PK\x03\x04"
_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22
_MAX_PICKLE_BYTES = 32 << 20
_MAX_OPERATIONS = 4_000_000
"""Of a pickle. That of a checkpoint with a thousand tensors and its optimizer has a hundred thousand."""
_STORAGE_FIELDS = 5
"""Word, type, key, place, number of items."""
_ITEM_BYTES = {
    **dict.fromkeys(("BoolStorage", "ByteStorage", "CharStorage", "QInt8Storage", "QUInt8Storage"), 1),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    "ComplexDoubleStorage": 16,
    "UntypedStorage": 1,
}


class TensorShape(tuple[int, ...]):
    """In place of a tensor. A type of its own, so that a tuple in the file is no tensor."""

    __slots__ = ()


class _Storage(NamedTuple):
    num_items: int


class ShapeUnpickler(pickle.Unpickler):
    """Reads a state dict that torch.save wrote, with a shape in place of each tensor. It cannot create anything else:
    a pickle that names another function or class is refused before the name is looked up."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.storage_bytes: dict[str, int] = {}
        """By the keys of the storages that tensors refer to."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLACEHOLDERS:
            return _PLACEHOLDERS[module, name]
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"it holds {module}.{name}, and may hold nothing but tensors")

    def persistent_load(self, pid: Any) -> _Storage:
        is_storage = isinstance(pid, tuple) and len(pid) >= _STORAGE_FIELDS and pid[0] == "storage"
        kind, key, num_items = (pid[1], pid[2], pid[4]) if is_storage else ("", "", -1)
        if not isinstance(key, str) or not _are_sizes([num_items]) or kind not in _ITEM_BYTES:
            raise pickle.UnpicklingError(f"it has a storage {pid!r}, which torch did not write")
        self.storage_bytes[key] = num_items * _ITEM_BYTES[kind]
        return _Storage(num_items)


def _are_sizes(values: Sequence[Any]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _shape_of(storage: Any, offset: Any, size: Any, stride: Any, *_rest: Any) -> TensorShape:
    if not (isinstance(storage, _Storage) and len(size) == len(stride) and _are_sizes([offset, *size, *stride])):
        raise pickle.UnpicklingError("it has a tensor that torch did not write")
    num_items = 0 if 0 in size else offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if num_items > storage.num_items:
        raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} has only {storage.num_items} numbers")
    return TensorShape(size)


_PLACEHOLDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _shape_of,
    ("torch._utils", "_rebuild_parameter"): lambda shape, *_rest: shape,
    ("collections", "OrderedDict"): OrderedDict,
}


def read_pickle(path: Path, advice: str, unpickler: type[ShapeUnpickler] = ShapeUnpickler) -> Any:
    """The content of a file that torch.save wrote, with a TensorShape in place of each tensor."""
    require_file(path, advice)
    try:
        with path.open("rb") as file:
            return _zipped(file, unpickler) if file.read(2) == _ZIP_BEGIN[:2] else _legacy(file, unpickler)
    except Exception as error:  # noqa: BLE001  a damaged pickle raises whatever its bytes happen to mean
        why = shown(str(error).partition("\n")[0], 300) or type(error).__name__
        raise BadInput(f"cannot read the weights {path}: {why}; {advice}") from None


def is_state(content: Any, kind: type = TensorShape) -> bool:
    """Whether it is tensors by their names, and nothing else."""
    return isinstance(content, Mapping) and all(
        isinstance(name, str) and name.isprintable() and isinstance(value, kind) for name, value in content.items()
    )


# --- today's form: an archive ---------------------------------------------------------------------------------------


def _zipped(file: IO[bytes], unpickler: type[ShapeUnpickler]) -> Any:
    file_bytes = _check_frame(file)
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if min((entry.header_offset for entry in entries.values()), default=0):
            raise ValueError("something stands before the archive")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("it is a compressed archive, and torch compresses nothing")
        if sum(entry.file_size for entry in entries.values()) > file_bytes:
            raise ValueError("its parts are larger than the whole file")
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(names) != 1:
            raise ValueError(f"it is an archive with {len(names)} files called data.pkl, and torch writes one")
        folder = names[0].removesuffix("data.pkl")
        if not all(name.startswith(folder) for name in entries):
            raise ValueError(f"it has parts outside of its folder {shown(folder)}")
        if entries[names[0]].file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"its data.pkl has {entries[names[0]].file_size} bytes, too many for names and shapes")
        content = io.BytesIO(archive.read(names[0]))
    reader = unpickler(content)
    state = _load(content, reader)
    if content.read(1):
        raise ValueError("something follows the end of its data.pkl")
    _check_records(folder, reader.storage_bytes, entries)
    return state


def _check_frame(file: IO[bytes]) -> int:
    """The archive has to fill the file: zipfile would skip what stands before or after it. Returns the file's size."""
    file.seek(0)
    begin = file.read(len(_ZIP_BEGIN))
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _ZIP_END_BYTES))
    end = file.read()
    if not end.startswith(_ZIP_END) or end[-2:] != b"\0\0":
        file.seek(0)
        raise ValueError("something follows its end" if zipfile.is_zipfile(file) else "its end is missing")
    if begin != _ZIP_BEGIN:
        raise ValueError("it does not begin as an archive does")
    file.seek(0)
    return size


def _check_records(folder: str, storage_bytes: Mapping[str, int], entries: Mapping[str, zipfile.ZipInfo]) -> None:
    for key, num_bytes in storage_bytes.items():
        entry = entries.get(f"{folder}data/{key}")
        if entry is None or entry.file_size != num_bytes:
            found = "is missing" if entry is None else f"has {entry.file_size} bytes"
            raise ValueError(f"its part data/{key}, of {num_bytes} bytes, {found}")


# --- the form of torch before 1.6 -----------------------------------------------------------------------------------


def _legacy(file: IO[bytes], unpickler: type[ShapeUnpickler]) -> Any:
    """Five pickles, the last of which lists the storages, and then these."""
    file.seek(0)
    content = io.BytesIO(file.read(_MAX_PICKLE_BYTES))
    for _ in range(_LEGACY_HEAD):
        _load(content, unpickler(content))
    reader = unpickler(content)
    state = _load(content, reader)
    keys = _load(content, unpickler(content))
    if not isinstance(keys, list) or sorted(keys) != sorted(reader.storage_bytes):
        raise ValueError("the list of its storages is damaged")
    size = os.fstat(file.fileno()).st_size
    wanted = content.tell() + sum(_LEGACY_COUNT_BYTES + reader.storage_bytes[key] for key in keys)
    if size != wanted:
        raise ValueError(f"it has {size} bytes, and its tensors end at {wanted}")
    return state


# --- one pickle -----------------------------------------------------------------------------------------------------


def _load(content: IO[bytes], reader: ShapeUnpickler) -> Any:
    begin = content.tell()
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content), 1):
        # The reader's list of objects grows to the number that is put in: five bytes could take all the memory.
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > number:
            raise pickle.UnpicklingError("it numbers objects that it does not have")
        if number > _MAX_OPERATIONS:
            raise pickle.UnpicklingError("it is too long for names and shapes")
    content.seek(begin)
    return reader.load()
