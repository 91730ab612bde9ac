"""Read checkpoints on disk: their files, the names and shapes of their tensors, and the weights themselves.

Names and shapes are compared with what a model needs before a run, without reading a weight, so that a wrong download
is reported early: safetensors files by their headers, files that torch.save wrote by torch on its meta device. A
machine without torch cannot look into the latter, see `can_look_into`.

No code that a pickle names is run. Settings of the program that wrote it (an argparse.Namespace, classes of that
program) become empty placeholders; a pickle that wants to call anything is refused.

In this order: files, shapes, safetensors, what torch.save wrote, Hugging Face folders of Llama-family models.
Importable without torch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import pickle
import re
import struct
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flagperf.errors import BadInput
from flagperf_cases.data_files import MAX_JSON_BYTES, is_there, parse_json, read_json_object, require_file, shown

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]

_NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def find_weights(folder: Path, advice: str) -> list[Path]:
    """Return the files of a checkpoint, the index of a sharded one first. safetensors is preferred over pickles."""
    for name in _NAMES:
        path = folder / name
        if is_there(path):
            require_file(path, advice)
            if path.suffix != ".json":
                return [path]
            shards = sorted(set(_weight_map(path, advice).values()))
            return [path, *(require_file(folder / shard, advice) for shard in shards)]
    raise BadInput(f"{folder} has neither {_NAMES[0]} nor {_NAMES[2]}, whole or in shards; {advice}")


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


def read_tensors(files: Sequence[Path], advice: str) -> dict[str, torch.Tensor]:
    """Return all tensors of a checkpoint, on the host. Raise BadInput for a pickle that holds anything else."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        if path.suffix == ".safetensors":
            try:
                tensors |= load_file(path)
            except (SafetensorError, OSError) as error:
                raise _unreadable(path, str(error).splitlines()[0], advice) from None
        elif path.suffix != ".json":
            tensors |= only_tensors(path, load_saved(path, advice), advice)
    return tensors


def _unreadable(path: Path, why: str, advice: str) -> BadInput:
    return BadInput(f"cannot read the weights {path}: {why}; {advice}")


# --- shapes ---------------------------------------------------------------------------------------------------------


def can_look_into(files: Sequence[Path]) -> bool:
    """Return False, and say so on stderr, if it takes torch to look into one of the files and torch is not installed.
    All that is known of such a file before the run is its size."""
    saved = [path for path in files if path.suffix not in (".safetensors", ".json")]
    if not saved or importlib.util.find_spec("torch"):
        return True
    more = f" and {len(saved) - 1} more" if len(saved) > 1 else ""
    print(f"{saved[0]}{more}: torch is not installed here, so only the size is checked", file=sys.stderr)
    return False


def read_shapes(files: Sequence[Path], advice: str) -> dict[str, Shape]:
    """Return the shapes of all tensors in the files of a checkpoint. Raise BadInput if its index names others."""
    shapes: dict[str, Shape] = {}
    homes: dict[str, str] = {}
    for path in files:
        if path.suffix == ".safetensors":
            found = _safetensors_shapes(path, advice)
        elif path.suffix != ".json":
            found = shapes_of(only_tensors(path, load_saved(path, advice, device="meta"), advice))
        else:
            continue
        shapes |= found
        homes |= dict.fromkeys(found, path.name)
    for index in (path for path in files if path.suffix == ".json"):
        for name, place in _weight_map(index, advice).items():
            if homes.get(name) != place:
                where = f"is in {homes[name]}" if name in homes else "is not there"
                raise BadInput(f"{index} says that {shown(name)} is in {place}, and it {where}; {advice}")
    return shapes


def shapes_of(state: Mapping[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def check_shapes(where: Path, found: Mapping[str, Shape], wanted: Mapping[str, Shape], advice: str) -> None:
    """Require every wanted tensor in its shape and no other. Raise BadInput with the first three problems."""
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
    """Compare a field of a checkpoint's config.json with the value model.`key` of this run."""
    if found != wanted:
        raise BadInput(
            f"{path} is of a model with {name}={shown(found)}, and this run has model.{key}={wanted}; {advice}"
        )


def layer_number(name: str) -> int:
    """Return the layer that a weight belongs to, -1 for none."""
    found = re.search(r"\.layers?\.(\d+)\.", name)
    return int(found[1]) if found else -1


# --- safetensors ----------------------------------------------------------------------------------------------------

_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8"), 8),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F64", "I64", "U64"), 64),
}


def _safetensors_shapes(path: Path, advice: str) -> dict[str, Shape]:
    """Read the header: its length in eight bytes, JSON, then the weights. Raise BadInput for a truncated file."""
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
        end = 0
        for begin, own_end in sorted(map(_place_of, tensors.values())):
            if begin != end:
                raise ValueError("a gap, or an overlap")
            end = own_end
    except (BadInput, ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(path, "its header is damaged", advice) from None
    if path.stat().st_size != 8 + num_bytes + end:
        raise _unreadable(
            path, f"it has {path.stat().st_size} bytes where its header says {8 + num_bytes + end}", advice
        )
    return shapes


def _place_of(entry: dict[str, Any]) -> tuple[int, int]:
    """Return where a tensor's bytes begin and end. Raise ValueError if their number does not fit its shape and type,
    and KeyError for an unknown type."""
    begin, end = entry["data_offsets"]
    bits = _BITS[entry["dtype"].partition("_")[0]]
    if not all(type(size) is int and size >= 0 for size in (*entry["shape"], begin, end)):
        raise ValueError("not a size")
    if (end - begin) * 8 != math.prod(entry["shape"]) * bits:
        raise ValueError("another number of bytes")
    return int(begin), int(end)


# --- what torch.save wrote ------------------------------------------------------------------------------------------

_MAX_PLACEHOLDERS = 100
_NOT_ALLOWED = re.compile(r"GLOBAL (\S+) was not an allowed global")

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


def load_saved(path: Path, advice: str, *, device: str = "cpu", mmap: bool = False) -> Any:
    """Return the content of a file that torch.save wrote. On the device `meta` tensors have shapes and no values, and
    no weight is read; with `mmap` weights are read lazily. Raise BadInput if that is impossible, or unsafe."""
    import torch

    require_file(path, advice)
    try:
        is_archive = zipfile.is_zipfile(path)
        if is_archive:
            with zipfile.ZipFile(path) as archive:  # a small file that grows when it is read is not torch's
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise ValueError("it is a compressed archive, and torch compresses nothing")
        content, placeholders = _loaded_on_meta(path, is_archive)
        if device == "meta":
            return content
        with _allowed(placeholders):
            return torch.load(path, map_location=device, weights_only=True, mmap=mmap)
    except Exception as error:  # noqa: BLE001  a damaged pickle raises whatever its bytes happen to mean
        raise _unreadable(path, short_reason(error), advice) from None


def _loaded_on_meta(path: Path, is_archive: bool) -> tuple[Any, list[type]]:
    """Return the content without weights, and a placeholder for each name in the file that torch does not know."""
    import torch

    placeholders: list[type] = []
    while True:
        try:
            with _allowed(placeholders):
                return torch.load(path, map_location="meta", weights_only=True, mmap=is_archive), placeholders
        except pickle.UnpicklingError as error:
            unknown = _NOT_ALLOWED.search(str(error))
            if unknown is None or len(placeholders) == _MAX_PLACEHOLDERS:
                raise
            module, _, name = unknown[1].rpartition(".")
            metaclass = type if unknown[1].startswith(DATA_CONSTRUCTORS) else _RefusesCalls
            placeholders.append(metaclass(name, (_Placeholder,), {"__module__": module, "__qualname__": name}))


def _allowed(placeholders: list[type]) -> contextlib.AbstractContextManager[Any]:
    from torch import serialization

    safe_globals = getattr(serialization, "safe_globals", None)  # torch before 2.5 reads plain data only
    return safe_globals(placeholders) if safe_globals and placeholders else contextlib.nullcontext()


class _Placeholder:
    """Keeps nothing of what the pickle says about it."""

    def __new__(cls, *_arguments: Any) -> _Placeholder:
        return object.__new__(cls)

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _RefusesCalls(type):
    """Makes classes that pickle can make objects of, which it does without calling them. A pickle that calls one wants
    code to be run."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it calls {cls.__module__}.{cls.__qualname__}, which is not data")


def short_reason(error: Exception) -> str:
    """Return one line, without torch's advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)|(it calls .* is not data)", str(error))
    if refused:
        return refused.group(2) or f"it names {refused.group(1)}, which is not data"
    return shown(str(error).strip().partition("\n")[0], 300) or type(error).__name__


def is_state(content: Any) -> bool:
    """Return True if it is tensors by their names, and nothing else."""
    import torch

    return isinstance(content, Mapping) and all(
        isinstance(name, str) and name.isprintable() and isinstance(value, torch.Tensor)
        for name, value in content.items()
    )


def only_tensors(path: Path, content: Any, advice: str) -> dict[str, torch.Tensor]:
    if not is_state(content):
        raise _unreadable(path, "it does not hold tensors by their names", advice)
    return dict(content)


def check_mappable(path: Path, advice: str) -> None:
    """Refuse a file that cannot be loaded with `mmap`: torch maps only its newer (zip) format."""
    if not zipfile.is_zipfile(path):
        raise BadInput(
            f"{path} is in the format of torch before 1.6; load it with torch and save it again, or {advice}"
        )


# --- Llama-family models --------------------------------------------------------------------------------------------

_LLAMA_FIELDS = {
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "ffn",
    "vocab_size": "vocabulary",
    "tie_word_embeddings": "tied",
}
_PLAIN_LLAMA = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0}
"""What makes a Llama another model, if it is not this."""


def check_llama_config(path: Path, config: Mapping[str, Any], model: Mapping[str, Any], advice: str) -> None:
    """Check what the shapes of the weights cannot show (heads), and what reads better by name than as a shape. `model`
    holds the `model.*` values of the run."""
    for name, wanted in _PLAIN_LLAMA.items():
        if config.get(name, wanted) != wanted:
            raise BadInput(f"{path} has {name}={shown(config[name])}, and Llama 2 has {wanted}; {advice}")
    eps = config.get("rms_norm_eps", 1e-6)
    if isinstance(eps, bool) or not isinstance(eps, float | int) or not 0 < eps < 1:
        raise BadInput(f"{path}: rms_norm_eps={shown(eps)} is not a small number; {advice}")
    defaults = {"num_key_value_heads": config.get("num_attention_heads"), "tie_word_embeddings": False}
    for name, key in _LLAMA_FIELDS.items():
        check_config_value(path, name, config.get(name, defaults.get(name)), key, model[key], advice)


def llama_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the shape of every weight, by the names that transformers uses."""
    width, ffn, vocabulary = model["width"], model["ffn"], model["vocabulary"]
    kv_width = width // model["heads"] * model["kv_heads"]
    layer: dict[str, Shape] = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (kv_width, width),
        "self_attn.v_proj": (kv_width, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (ffn, width),
        "mlp.up_proj": (ffn, width),
        "mlp.down_proj": (width, ffn),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    ends: dict[str, Shape] = {"model.embed_tokens": (vocabulary, width), "model.norm": (width,)}
    if not model["tied"]:
        ends["lm_head"] = (vocabulary, width)
    layers = {f"model.layers.{n}.{name}": shape for n in range(model["layers"]) for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in {**ends, **layers}.items()}
