"""The Hugging Face folder of a Llama model: what has to be in it. Light: looked at before any process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.files import existing, read_json_object
from flagperf_cases.llama2_7b_finetune.tokens import SentencePieces
from flagperf_cases.weights import Shape, check_shapes, find_weights, layer_of, read_shapes

CHECKPOINT = "llama2_7b_hf"
GET_CHECKPOINT = (
    "download config.json, tokenizer.model and the weights of https://huggingface.co/meta-llama/Llama-2-7b-hf into the "
    f"folder {CHECKPOINT} of --data-dir"
)
FIT_CHECKPOINT = "set model.* as that checkpoint was made, or model.checkpoint=false to start from random weights"

Model = dict[str, Any]
"""The `model` values of a run."""


def check_tokenizer(folder: Path, vocabulary: int) -> SentencePieces:
    path = existing(folder / "tokenizer.model", GET_CHECKPOINT)
    tokenizer = SentencePieces(path)
    if tokenizer.num_tokens > vocabulary:
        raise BadInput(
            f"{path} has {tokenizer.num_tokens} pieces, more than model.vocabulary={vocabulary}; "
            f"set that to {tokenizer.num_tokens}, or take the tokenizer of this model"
        )
    return tokenizer


def check_checkpoint(folder: Path, model: Model) -> list[Path]:
    """config.json and the files of the weights."""
    path = folder / "config.json"
    _check_config(path, read_json_object(path, GET_CHECKPOINT), model)
    files = find_weights(folder, GET_CHECKPOINT)
    shapes = read_shapes(files, GET_CHECKPOINT)
    used = {name: shape for name, shape in shapes.items() if is_used(name, model["layers"], tied=model["tied"])}
    check_shapes(files[0], used, wanted_shapes(model), FIT_CHECKPOINT)
    return [path, *files]


def is_used(name: str, num_layers: int, *, tied: bool) -> bool:
    """Not used: layers that this run does without, a second copy of tied weights, and the frequencies of rotary
    positions, which old folders hold and every model makes for itself."""
    if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight"):
        return False
    return layer_of(name) < num_layers


def wanted_shapes(model: Model) -> dict[str, Shape]:
    width, ffn, vocabulary = model["width"], model["ffn"], model["vocabulary"]
    narrow = width // model["heads"] * model["kv_heads"]
    layer: dict[str, Shape] = {
        "self_attn.q_proj": (width, width), "self_attn.k_proj": (narrow, width), "self_attn.v_proj": (narrow, width),
        "self_attn.o_proj": (width, width), "mlp.gate_proj": (ffn, width), "mlp.up_proj": (ffn, width),
        "mlp.down_proj": (width, ffn), "input_layernorm": (width,), "post_attention_layernorm": (width,),
    }  # fmt: skip
    ends: dict[str, Shape] = {"model.embed_tokens": (vocabulary, width), "model.norm": (width,)}
    if not model["tied"]:
        ends["lm_head"] = (vocabulary, width)
    layers = {f"model.layers.{n}.{name}": shape for n in range(model["layers"]) for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in {**ends, **layers}.items()}


def _check_config(path: Path, config: dict[str, Any], model: Model) -> None:
    """What the weights cannot be told by (heads), and what is better said by its own name."""
    if config.get("model_type") != "llama":
        raise BadInput(f"{path} is of a model of type {config.get('model_type')!r}, not llama; {GET_CHECKPOINT}")
    heads = config.get("num_attention_heads")
    for name, key, found in (
        ("hidden_size", "width", config.get("hidden_size")),
        ("num_attention_heads", "heads", heads),
        ("num_key_value_heads", "kv_heads", config.get("num_key_value_heads", heads)),
        ("intermediate_size", "ffn", config.get("intermediate_size")),
        ("vocab_size", "vocabulary", config.get("vocab_size")),
        ("tie_word_embeddings", "tied", config.get("tie_word_embeddings", False)),
    ):
        if found != model[key]:
            raise BadInput(
                f"{path} is of a model with {name}={found}, and this run has model.{key}={model[key]}; {FIT_CHECKPOINT}"
            )
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers < model["layers"]:
        raise BadInput(
            f"{path} is of a model with num_hidden_layers={layers}, fewer than model.layers={model['layers']}; "
            f"{FIT_CHECKPOINT}"
        )
