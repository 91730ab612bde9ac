"""Small models in the checkpoint formats that aquila_33b reads."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from flagperf_cases.decoder.layout import DecoderShape

SMALL = DecoderShape(layers=2, width=64, heads=16, kv_heads=8, ffn=48, vocabulary=60, sequence=64)
"""Eight KV heads, as the published model has, and so up to eight shards."""
SMALL_CHANGES = {f"model__{name}": getattr(SMALL, name) for name in ("width", "heads", "kv_heads", "ffn", "vocabulary")}


def small_model(shape: DecoderShape = SMALL, std: float = 1.0) -> Any:
    from flagperf_cases.decoder.model import Decoder

    torch.manual_seed(7)
    model = Decoder(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, std)
    return model


class OfAnotherProgram:
    """A class that the reader of a checkpoint cannot import."""


def write_huggingface(folder: Path, model: Any, **config_changes: Any) -> None:
    from safetensors.torch import save_file

    shape = model.shape
    config = {
        "model_type": "llama",
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocabulary,
        "num_hidden_layers": shape.layers,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_base,
    }
    state = {
        name if name.startswith("lm_head") else f"model.{name}": value for name, value in model.state_dict().items()
    }
    (folder / "hf").mkdir()
    (folder / "hf/config.json").write_text(json.dumps(config | config_changes))
    save_file(state, folder / "hf/model.safetensors")


def write_megatron(
    folder: Path,
    model: Any,
    ways: int,
    padded_vocabulary: int,
    *,
    form: dict[str, Any] | None = None,
    stages: Sequence[int] = (),
    core: str = "",
) -> None:
    """Megatron's shards, with everything that a real checkpoint has besides the weights. `stages` are the layers of
    each pipeline stage; `core` is `fused` or `plain`, for the two forms of norms in Megatron-core."""
    import numpy

    home = folder / "ckpts/iter_0135000"
    home.mkdir(parents=True)
    (folder / "ckpts/latest_checkpointed_iteration.txt").write_text("135000\n")
    weights = {name: value.detach() for name, value in model.named_parameters()}
    OfAnotherProgram.__module__ = "program_that_is_not_here"
    sys.modules["program_that_is_not_here"] = module = type(sys)("program_that_is_not_here")
    module.OfAnotherProgram = OfAnotherProgram  # type: ignore[attr-defined]
    try:
        for rank in range(ways):
            content = {
                "args": argparse.Namespace(lr=1e-4, kind=OfAnotherProgram()),
                "checkpoint_version": 3.0,
                "iteration": 135000,
                "model": {},
                "optimizer": {"state": {0: torch.ones(3)}},
                "rng_state": [
                    {
                        "random_rng_state": random.getstate(),
                        "np_rng_state": numpy.random.get_state(),
                        "torch_rng_state": torch.get_rng_state(),
                        "rng_tracker_states": {"model-parallel-rng": torch.get_rng_state()},
                    }
                ],
            }
            shard = _shard(model.shape, weights, rank, ways, padded_vocabulary)
            for name, part in _by_stage(shard, stages, f"mp_rank_{rank:02d}"):
                content["model"] = _as_core(part, core == "fused") if core else {"language_model": part}
                (home / name).mkdir()
                torch.save(content, home / name / "model_optim_rng.pt", **(form or {}))
    finally:
        del sys.modules["program_that_is_not_here"]


def _shard(shape: DecoderShape, weights: dict[str, Any], rank: int, ways: int, padded: int) -> dict[str, Any]:
    def rows(table: Any) -> Any:
        more = table[-1:].expand(padded - len(table), -1)
        return torch.cat([table, more]).chunk(ways)[rank].clone()

    encoder = {"final_layernorm.weight": weights["norm.weight"]}
    for layer in range(shape.layers):
        own, prefix = f"layers.{layer}.", f"layers.{layer}."
        heads = [
            weights[f"{own}self_attn.{part}_proj.weight"].view(shape.kv_heads, -1, shape.head_size, shape.width)
            for part in "qkv"
        ]
        qkv = torch.cat(heads, 1).chunk(ways)[rank].flatten(0, 2)
        gate, up = (weights[f"{own}mlp.{part}_proj.weight"].chunk(ways)[rank] for part in ("gate", "up"))
        encoder |= {
            f"{prefix}input_layernorm.weight": weights[f"{own}input_layernorm.weight"],
            f"{prefix}post_attention_layernorm.weight": weights[f"{own}post_attention_layernorm.weight"],
            f"{prefix}self_attention.query_key_value.weight": qkv.clone(),
            f"{prefix}self_attention.dense.weight": weights[f"{own}self_attn.o_proj.weight"]
            .chunk(ways, 1)[rank]
            .clone(),
            f"{prefix}mlp.dense_h_to_4h.weight": torch.cat([gate, up]),
            f"{prefix}mlp.dense_4h_to_h.weight": weights[f"{own}mlp.down_proj.weight"].chunk(ways, 1)[rank].clone(),
        }
    return {
        "embedding": {"word_embeddings": {"weight": rows(weights["embed_tokens.weight"])}},
        "encoder": encoder,
        "output_layer": {"weight": rows(weights["lm_head.weight"])},
    }


def _by_stage(shard: dict[str, Any], stages: Sequence[int], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A stage numbers its own layers from 0; the first one has the embedding, the last one the rest."""
    if not stages:
        yield name, shard
        return
    first = 0
    for number, count in enumerate(stages):
        own = {f"layers.{first + layer}.": f"layers.{layer}." for layer in range(count)}
        is_last = number == len(stages) - 1
        encoder = {
            new + key.removeprefix(old): value
            for old, new in own.items()
            for key, value in shard["encoder"].items()
            if key.startswith(old)
        }
        if is_last:
            encoder["final_layernorm.weight"] = shard["encoder"]["final_layernorm.weight"]
        ends = {"embedding": shard["embedding"]} if number == 0 else {}
        ends |= {"output_layer": shard["output_layer"]} if is_last else {}
        yield f"{name}_{number:03d}", {**ends, "encoder": encoder}
        first += count


def _as_core(part: dict[str, Any], fused: bool) -> dict[str, Any]:
    """Flat names, and a state of each fused module that is no weight."""
    names = {
        "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight" if fused else "input_layernorm.weight",
        "post_attention_layernorm.weight": "mlp.linear_fc1.layer_norm_weight" if fused else "pre_mlp_layernorm.weight",
        "self_attention.query_key_value.weight": "self_attention.linear_qkv.weight",
        "self_attention.dense.weight": "self_attention.linear_proj.weight",
        "mlp.dense_h_to_4h.weight": "mlp.linear_fc1.weight",
        "mlp.dense_4h_to_h.weight": "mlp.linear_fc2.weight",
    }
    flat: dict[str, Any] = {}
    for key, value in part["encoder"].items():
        layer, _, rest = key.removeprefix("layers.").partition(".")
        is_layer = key.startswith("layers.")
        flat[f"decoder.layers.{layer}.{names[rest]}" if is_layer else f"decoder.{key}"] = value
        if is_layer and rest.startswith("mlp"):
            flat[f"decoder.layers.{layer}.mlp.linear_fc1._extra_state"] = None
    if "embedding" in part:
        flat["embedding.word_embeddings.weight"] = part["embedding"]["word_embeddings"]["weight"]
    if "output_layer" in part:
        flat["output_layer.weight"] = part["output_layer"]["weight"]
    return flat
