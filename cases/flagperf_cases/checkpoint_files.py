"""Checkpoints on disk: finds their files and compares the names and shapes of their tensors with what a model needs.

Names and shapes come from the file headers, without torch and without reading a weight, so that a wrong download is
reported before a run starts. `read_tensors` is for workers.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.data_files import read_json_object, require_file

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]

_NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8"), 8),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F64", "I64", "U64"), 64),
}
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's own reader."""
_LEGACY_HEAD = 3
"""Pickles that precede the state in a file of torch before 1.6: a magic number, a version, facts of the machine."""


def find_weights(folder: Path, advice: str) -> list[Path]:
    """The files of a checkpoint; the index of a sharded one comes first. safetensors is preferred over pickles."""
    for name in _NAMES:
        path = folder / name
        if path.is_file():
            return [require_file(path, advice), *(_shards(path, advice) if path.suffix == ".json" else ())]
    raise BadInput(f"{folder} has neither {_NAMES[0]} nor {_NAMES[2]}, whole or in shards; {advice}")


def read_shapes(files: Sequence[Path], advice: str) -> dict[str, Shape]:
    """Shapes of all tensors in the files of a checkpoint. An index has to agree with the shards."""
    shapes: dict[str, Shape] = {}
    homes: dict[str, str] = {}
    weights = [path for path in files if path.suffix != ".json"]
    for path in weights:
        found = _safetensors_shapes(path, advice) if path.suffix == ".safetensors" else _pickle_shapes(path, advice)
        shapes |= found
        homes |= dict.fromkeys(found, path.name)
    for index in (path for path in files if path.suffix == ".json"):
        _check_index(index, homes, advice)
    return shapes


def check_shapes(where: Path, found: Mapping[str, Shape], wanted: Mapping[str, Shape], advice: str) -> None:
    """Requires every wanted tensor in its shape and no other. BadInput names the first three problems."""
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} is unknown" for name in found if name not in wanted]
    problems += [
        f"{name} has the shape {found[name]}, not {shape}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BadInput(f"{where} does not fit the model of this run: {', '.join(problems[:3])}{more}; {advice}")


def check_config_value(path: Path, name: str, found: Any, key: str, wanted: Any, advice: str) -> None:
    """Compares a field of a checkpoint's config.json with the value model.`key` of this run."""
    if found != wanted:
        raise BadInput(f"{path} is of a model with {name}={found}, and this run has model.{key}={wanted}; {advice}")


def layer_number(name: str) -> int:
    """The layer that a weight belongs to, -1 for none."""
    found = re.search(r"\.layers?\.(\d+)\.", name)
    return int(found[1]) if found else -1


def read_tensors(files: Sequence[Path], advice: str) -> dict[str, torch.Tensor]:
    """All tensors, on the host. A pickle that holds anything else is refused, because loading it could run code."""
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        if path.suffix != ".json":
            tensors |= _tensors(path, advice)
    return tensors


def _tensors(path: Path, advice: str) -> dict[str, torch.Tensor]:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, OSError, EOFError, TypeError, ValueError) as error:
        raise _unreadable(path, str(error).splitlines()[0], advice) from None


def _unreadable(path: Path, why: str, advice: str) -> BadInput:
    return BadInput(f"cannot read the weights {path}: {why}; {advice}")


# --- shards ---------------------------------------------------------------------------------------------------------


def _shards(index: Path, advice: str) -> list[Path]:
    places = _weight_map(index, advice)
    return [require_file(index.parent / name, advice) for name in sorted(set(places.values()))]


def _weight_map(index: Path, advice: str) -> dict[str, str]:
    places = read_json_object(index, advice).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadInput(f"{index} has no weight_map, which says where each tensor is; {advice}")
    for name, place in places.items():
        if not isinstance(place, str) or Path(place).name != place:
            raise BadInput(f"{index}: {name} is said to be in {place!r}, which is not a file of its folder; {advice}")
    return places


def _check_index(index: Path, homes: Mapping[str, str], advice: str) -> None:
    for name, place in _weight_map(index, advice).items():
        if homes.get(name) != place:
            found = f"is in {homes[name]}" if name in homes else "is not there"
            raise BadInput(f"{index} says that {name} is in {place}, and it {found}; {advice}")


# --- safetensors ----------------------------------------------------------------------------------------------------


def _safetensors_shapes(path: Path, advice: str) -> dict[str, Shape]:
    """The format: the header's length in eight bytes, the header as JSON, then the weights. Truncated files fail."""
    with require_file(path, advice).open("rb") as file:
        length = file.read(8)
        num_bytes = struct.unpack("<Q", length)[0] if len(length) == 8 else _MAX_HEADER_BYTES + 1
        if num_bytes > min(_MAX_HEADER_BYTES, path.stat().st_size):
            raise _unreadable(path, "it does not begin as a safetensors file does", advice)
        header = file.read(num_bytes)
    try:
        tensors = {name: entry for name, entry in _json_object(header).items() if name != "__metadata__"}
        ends = [_end_of(entry) for entry in tensors.values()]
        shapes = {name: tuple(entry["shape"]) for name, entry in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(path, "its header is damaged", advice) from None
    expected = 8 + num_bytes + max(ends, default=0)
    if path.stat().st_size != expected:
        raise _unreadable(path, f"it has {path.stat().st_size} bytes where its header says {expected}", advice)
    return shapes


def _json_object(text: bytes) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def _end_of(entry: dict[str, Any]) -> int:
    """Where a tensor's bytes end. Raises ValueError if their number does not fit its shape and type."""
    begin, end = entry["data_offsets"]
    bits = _BITS.get(entry["dtype"].partition("_")[0])
    if not all(type(size) is int and size >= 0 for size in (*entry["shape"], begin, end)):
        raise ValueError("not a size")
    if bits is not None and (end - begin) * 8 != math.prod(entry["shape"]) * bits:
        raise ValueError("another number of bytes")
    return int(end)


# --- pickles --------------------------------------------------------------------------------------------------------


class ShapeUnpickler(pickle.Unpickler):
    """Reads a state dict that torch.save wrote, with a shape in place of each tensor. It cannot create anything else:
    a pickle that names another function or class is refused before the name is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLACEHOLDERS:
            return _PLACEHOLDERS[module, name]
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"it holds {module}.{name}, and may hold nothing but tensors")

    def persistent_load(self, pid: Any) -> None:
        """The storage of a tensor, which is not needed for its shape."""


def _shape_of(_storage: Any, _offset: int, size: Sequence[int], *_rest: Any) -> Shape:
    return tuple(size)


_PLACEHOLDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _shape_of,
    ("torch._utils", "_rebuild_parameter"): lambda shape, *_rest: shape,
    ("collections", "OrderedDict"): OrderedDict,
}


def read_pickle(path: Path, advice: str, unpickler: type[ShapeUnpickler] = ShapeUnpickler) -> Any:
    """The content of a file that torch.save wrote, with a shape in place of each tensor."""
    try:
        with require_file(path, advice).open("rb") as file:
            return _state(file, unpickler)
    except Exception as error:  # noqa: BLE001  a damaged pickle raises whatever its bytes happen to mean
        raise _unreadable(path, str(error).splitlines()[0] if str(error) else type(error).__name__, advice) from None


def _pickle_shapes(path: Path, advice: str) -> dict[str, Shape]:
    state = read_pickle(path, advice)
    if not isinstance(state, dict) or not all(isinstance(shape, tuple) for shape in state.values()):
        raise _unreadable(path, "it does not hold tensors by their names", advice)
    return dict(state)


def _state(file: IO[bytes], unpickler: type[ShapeUnpickler]) -> Any:
    if file.read(2) == b"PK" and not zipfile.is_zipfile(file):
        raise ValueError("its end is missing")
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if len(names) != 1:
                raise ValueError(f"it is an archive with {len(names)} files called data.pkl, and torch writes one")
            return unpickler(io.BytesIO(archive.read(names[0]))).load()
    file.seek(0)
    for _ in range(_LEGACY_HEAD):
        unpickler(file).load()
    return unpickler(file).load()
