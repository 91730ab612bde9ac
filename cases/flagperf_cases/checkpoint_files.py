"""Checkpoints on disk: finds their files and compares the names and shapes of their tensors with what a model needs.

Names and shapes come from the file headers, without torch and without reading a weight, so that a wrong download is
reported before a run starts. `read_tensors` is for workers.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.data_files import (
    MAX_JSON_BYTES,
    is_there,
    parse_json,
    read_json_object,
    require_file,
    shown,
)
from flagperf_cases.torch_files import is_state, read_pickle

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


def find_weights(folder: Path, advice: str) -> list[Path]:
    """The files of a checkpoint; the index of a sharded one comes first. safetensors is preferred over pickles."""
    for name in _NAMES:
        path = folder / name
        if is_there(path):
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
    problems += [f"{shown(name)} is unknown" for name in found if name not in wanted]
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
        raise BadInput(
            f"{path} is of a model with {name}={shown(found)}, and this run has model.{key}={wanted}; {advice}"
        )


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
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    content = read_json_object(index, advice)
    places = content.get("weight_map")
    if not isinstance(content.get("metadata"), dict):
        raise BadInput(f"{index} has no metadata, which transformers needs; {advice}")
    if not isinstance(places, dict) or not places:
        raise BadInput(f"{index} has no weight_map, which says where each tensor is; {advice}")
    for name, place in places.items():
        if not isinstance(place, str) or Path(place).name != place or Path(place).suffix != suffix:
            raise BadInput(
                f"{index}: {shown(name)} is said to be in {shown(place)!r}, which is not a {suffix} file of its "
                f"folder; {advice}"
            )
    return places


def _check_index(index: Path, homes: Mapping[str, str], advice: str) -> None:
    for name, place in _weight_map(index, advice).items():
        if homes.get(name) != place:
            found = f"is in {homes[name]}" if name in homes else "is not there"
            raise BadInput(f"{index} says that {shown(name)} is in {place}, and it {found}; {advice}")


# --- safetensors ----------------------------------------------------------------------------------------------------


def _safetensors_shapes(path: Path, advice: str) -> dict[str, Shape]:
    """The format: the header's length in eight bytes, the header as JSON, then the weights. Truncated files fail."""
    with require_file(path, advice).open("rb") as file:
        length = file.read(8)
        num_bytes = struct.unpack("<Q", length)[0] if len(length) == 8 else MAX_JSON_BYTES + 1
        if num_bytes > min(MAX_JSON_BYTES, path.stat().st_size):
            raise _unreadable(path, "it does not begin as a safetensors file does", advice)
        header = file.read(num_bytes)
    try:
        content = parse_json(header, str(path), advice)
        tensors = {name: entry for name, entry in content.items() if name != "__metadata__"}
        shapes = {name: tuple(entry["shape"]) for name, entry in tensors.items()}
        expected = 8 + num_bytes + _joined_end([_place_of(entry) for entry in tensors.values()])
    except (BadInput, ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(path, "its header is damaged", advice) from None
    if path.stat().st_size != expected:
        raise _unreadable(path, f"it has {path.stat().st_size} bytes where its header says {expected}", advice)
    return shapes


def _joined_end(places: Sequence[tuple[int, int]]) -> int:
    """Where the last tensor ends. Raises ValueError unless each begins where another one ends."""
    end = 0
    for begin, own_end in sorted(places):
        if begin != end:
            raise ValueError("a gap, or an overlap")
        end = own_end
    return end


def _place_of(entry: dict[str, Any]) -> tuple[int, int]:
    """Where a tensor's bytes begin and end. Raises ValueError if their number does not fit its shape and type, and
    KeyError for an unknown type."""
    begin, end = entry["data_offsets"]
    bits = _BITS[entry["dtype"].partition("_")[0]]
    if not all(type(size) is int and size >= 0 for size in (*entry["shape"], begin, end)):
        raise ValueError("not a size")
    if (end - begin) * 8 != math.prod(entry["shape"]) * bits:
        raise ValueError("another number of bytes")
    return int(begin), int(end)


# --- pickles --------------------------------------------------------------------------------------------------------


def _pickle_shapes(path: Path, advice: str) -> dict[str, Shape]:
    state = read_pickle(path, advice)
    if not is_state(state):
        raise _unreadable(path, "it does not hold tensors by their names", advice)
    return dict(state)
