"""A Hugging Face folder of a Llama-family model: what has to be in it, and its weights one at a time.

Importable without torch: the folder is looked at before any process starts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.decoder.shape import DecoderShape
from flagperf_cases.files import read_json_object
from flagperf_cases.pickles import load_inert, refuse_unmappable
from flagperf_cases.weights import Shape, check_shapes, find_weights, read_shapes

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
TYPES = ("llama", "aquila")
ADVICE = (
    "with model.checkpoint=huggingface the folder hf of --data-dir has config.json and the weights, as downloaded; set "
    "model.* as its config.json says"
)

Weights = Callable[[str], "torch.Tensor"]
"""From a decoder's name of a parameter to all of it."""


def check_hugging_face(folder: Path, shape: DecoderShape) -> list[Path]:
    """The files of a folder that has every weight of this model in its shape, from their heads alone."""
    config = folder / CONFIG
    check_config(config, read_json_object(config, ADVICE), shape)
    files = find_weights(folder, ADVICE)
    found = {name: size for name, size in read_shapes(files, ADVICE).items() if not name.endswith("inv_freq")}
    if shape.tied:
        found.pop("lm_head.weight", None)
    check_shapes(folder, found, hugging_face_shapes(shape), ADVICE)
    for path in files:
        if path.suffix == ".bin":
            refuse_unmappable(path, ADVICE)
    return [config, *files]


def check_config(path: Path, config: dict[str, Any], shape: DecoderShape) -> None:
    """What the weights cannot be told by: heads, positions, norms; and what is better said by its own name."""
    if config.get("model_type") not in TYPES:
        raise BadInput(f"{path} is of a model of type {config.get('model_type')!r}, not {' or '.join(TYPES)}; {ADVICE}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        raise BadInput(f"{path} is of a model with rotary positions of type {kind!r}; the decoder's are plain")
    heads = config.get("num_attention_heads")
    for name, key, found in (
        ("num_hidden_layers", "layers", config.get("num_hidden_layers")),
        ("hidden_size", "width", config.get("hidden_size")),
        ("num_attention_heads", "heads", heads),
        ("num_key_value_heads", "kv_heads", config.get("num_key_value_heads", heads)),
        ("intermediate_size", "ffn", config.get("intermediate_size")),
        ("vocab_size", "vocabulary", config.get("vocab_size")),
        ("tie_word_embeddings", "tied", config.get("tie_word_embeddings", False)),
        ("rms_norm_eps", "norm_eps", config.get("rms_norm_eps")),
        ("rope_theta", "rope_base", rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
    ):
        wanted = getattr(shape, key)
        if found != wanted:
            raise BadInput(f"{path} is of a model with {name}={found}, and this run has model.{key}={wanted}; {ADVICE}")


def hugging_face_shapes(shape: DecoderShape) -> dict[str, Shape]:
    width, kv, ffn = shape.width, shape.kv_width, shape.ffn
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (shape.vocabulary, width), "model.norm.weight": (width,)}
    if not shape.tied:
        shapes["lm_head.weight"] = (shape.vocabulary, width)
    for layer in range(shape.layers):
        for part, size in {
            "input_layernorm": (width,), "post_attention_layernorm": (width,),
            "self_attn.q_proj": (width, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, width), "mlp.gate_proj": (ffn, width), "mlp.up_proj": (ffn, width),
            "mlp.down_proj": (width, ffn),
        }.items():  # fmt: skip
            shapes[f"model.layers.{layer}.{part}.weight"] = size
    return shapes


def open_hugging_face(folder: Path) -> Weights:
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
    tensors = load_inert(path, ADVICE, mmap=True)
    return dict.fromkeys(tensors, tensors.__getitem__)
