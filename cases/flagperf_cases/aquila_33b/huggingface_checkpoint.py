"""A Hugging Face folder of a Llama-family model: checks of its files, and its weights one at a time.

Importable without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import check_config_value, check_shapes, find_weights, read_shapes
from flagperf_cases.data_files import read_json_object, shown
from flagperf_cases.decoder.shape import DecoderShape
from flagperf_cases.llama_checkpoint import check_llama_config, llama_shapes
from flagperf_cases.safe_pickle import check_mappable, safe_load

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
TYPES = ("llama", "aquila")
ADVICE = (
    "with model.checkpoint=huggingface the folder hf of --data-dir has config.json and the weights, as downloaded; set "
    "model.* as its config.json says"
)

Weights = Callable[[str], "torch.Tensor"]
"""From the decoder's name of a parameter to the whole weight."""


def check_huggingface(folder: Path, shape: DecoderShape) -> list[Path]:
    """The files of a folder that has every weight of this model in its shape. No weight is read."""
    config = folder / CONFIG
    check_config(config, read_json_object(config, ADVICE), shape)
    files = find_weights(folder, ADVICE)
    found = {name: size for name, size in read_shapes(files, ADVICE).items() if not name.endswith("inv_freq")}
    if shape.tied:
        found.pop("lm_head.weight", None)
    check_shapes(folder, found, llama_shapes(asdict(shape)), ADVICE)
    for path in files:
        if path.suffix == ".bin":
            check_mappable(path, ADVICE)
    return [config, *files]


def check_config(path: Path, config: dict[str, Any], shape: DecoderShape) -> None:
    """Checks what the shapes of the weights cannot show: heads, positions, norms."""
    if config.get("model_type") not in TYPES:
        own_type = shown(config.get("model_type"))
        raise BadInput(f"{path} is of a model of type {own_type!r}, not {' or '.join(TYPES)}; {ADVICE}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        raise BadInput(
            f"{path} has rotary positions of type {shown(kind)!r}, and the decoder supports the default type only; "
            "take another model"
        )
    check_llama_config(path, config, asdict(shape), ADVICE)
    for name, key, found in (
        ("num_hidden_layers", "layers", config.get("num_hidden_layers")),
        ("rms_norm_eps", "norm_eps", config.get("rms_norm_eps")),
        ("rope_theta", "rope_base", rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
    ):
        check_config_value(path, name, found, key, getattr(shape, key), ADVICE)


def open_huggingface(folder: Path) -> Weights:
    homes: dict[str, Callable[[str], torch.Tensor]] = {}
    for path in find_weights(folder, ADVICE):
        if path.suffix != ".json":
            homes |= _tensors_of(path)

    def weight(name: str) -> torch.Tensor:
        full_name = name if name.startswith("lm_head.") else f"model.{name}"
        return homes[full_name](full_name)

    return weight


def _tensors_of(path: Path) -> dict[str, Callable[[str], torch.Tensor]]:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        file: Any = safe_open(path, "pt")
        return dict.fromkeys(file.keys(), file.get_tensor)
    tensors = safe_load(path, ADVICE, mmap=True)
    return dict.fromkeys(tensors, tensors.__getitem__)
