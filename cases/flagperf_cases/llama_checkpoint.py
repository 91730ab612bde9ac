"""Hugging Face folders of Llama-family models: what config.json has to say, and which weights have to be there.

Importable without torch. `model` holds the `model.*` values of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import Shape, check_config_value
from flagperf_cases.data_files import shown

_FIELDS = {
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "ffn",
    "vocab_size": "vocabulary",
    "tie_word_embeddings": "tied",
}


_PLAIN = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0}
"""What makes a Llama another model, if it is not this."""


def check_llama_config(path: Path, config: Mapping[str, Any], model: Mapping[str, Any], advice: str) -> None:
    """Checks what the shapes of the weights cannot show (heads), and what reads better by name than as a shape."""
    for name, wanted in _PLAIN.items():
        if config.get(name, wanted) != wanted:
            raise BadInput(f"{path} has {name}={shown(config[name])}, and Llama 2 has {wanted}; {advice}")
    eps = config.get("rms_norm_eps", 1e-6)
    if isinstance(eps, bool) or not isinstance(eps, float | int) or not 0 < eps < 1:
        raise BadInput(f"{path}: rms_norm_eps={shown(eps)} is not a small number; {advice}")
    defaults = {"num_key_value_heads": config.get("num_attention_heads"), "tie_word_embeddings": False}
    for name, key in _FIELDS.items():
        check_config_value(path, name, config.get(name, defaults.get(name)), key, model[key], advice)


def llama_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    """Of every weight, by the names that transformers uses."""
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
