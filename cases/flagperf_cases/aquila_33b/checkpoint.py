"""Aquila's weights: Megatron's shards, as published or by Megatron-core, or a Hugging Face folder.

Both give one whole weight at a time, by the decoder's own name, so that any number of ranks can take their slices and
none holds the whole model. Pickles are read without running any code that they name. Importable without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.huggingface_checkpoint import Weights, check_huggingface, open_huggingface
from flagperf_cases.aquila_33b.megatron_shards import ADVICE, ITERATION, find_shards, joined_stages, stage_weights
from flagperf_cases.checkpoint_files import Shape, check_shapes
from flagperf_cases.decoder.shape import DecoderShape
from flagperf_cases.safe_pickle import PlaceholderUnpickler, check_mappable, safe_load
from flagperf_cases.torch_files import TensorShape, read_pickle

if TYPE_CHECKING:
    import torch

MEGATRON, HUGGINGFACE = "ckpts", "hf"


def check_checkpoint(folder: Path, format: str, shape: DecoderShape) -> list[Path]:
    """The files of a checkpoint that has every weight of this model in its shape. No weight is read."""
    if format == "huggingface":
        return check_huggingface(folder / HUGGINGFACE, shape)
    shards = find_shards(folder / MEGATRON)
    for stages in shards:
        weights = joined_stages([_stage_shapes(path) for path in stages], tied=shape.tied)
        found = _without_padding(weights, shape, len(shards))
        check_shapes(stages[0], found, megatron_shapes(stages[0], shape, len(shards)), ADVICE)
    return [folder / MEGATRON / ITERATION, *(path for stages in shards for path in stages)]


def _stage_shapes(path: Path) -> dict[str, TensorShape]:
    content = read_pickle(path, ADVICE, PlaceholderUnpickler)
    check_mappable(path, ADVICE)
    return stage_weights(path, content, TensorShape)


def open_checkpoint(folder: Path, format: str, shape: DecoderShape) -> Weights:
    if format == "huggingface":
        return open_huggingface(folder / HUGGINGFACE)
    import torch

    shards = [
        [stage_weights(path, safe_load(path, ADVICE, mmap=True), torch.Tensor) for path in stages]
        for stages in find_shards(folder / MEGATRON)
    ]
    return MegatronWeights(shape, [joined_stages(stages, tied=shape.tied) for stages in shards])


# --- Megatron -------------------------------------------------------------------------------------------------------


def megatron_shapes(path: Path, shape: DecoderShape, ways: int) -> dict[str, Shape]:
    for name in ("kv_heads", "heads", "ffn"):
        if getattr(shape, name) % ways:
            raise BadInput(f"{path}: {ways} shards do not divide model.{name}={getattr(shape, name)}; {ADVICE}")
    width, qkv = shape.width, (shape.width + 2 * shape.kv_width) // ways
    table = (-(-shape.vocabulary // ways), width)
    shapes: dict[str, Shape] = {"embedding.word_embeddings.weight": table, "encoder.final_layernorm.weight": (width,)}
    if not shape.tied:
        shapes["output_layer.weight"] = table
    for layer in range(shape.layers):
        prefix = f"encoder.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (width,),
            f"{prefix}post_attention_layernorm.weight": (width,),
            f"{prefix}self_attention.query_key_value.weight": (qkv, width),
            f"{prefix}self_attention.dense.weight": (width, width // ways),
            f"{prefix}mlp.dense_h_to_4h.weight": (2 * shape.ffn // ways, width),
            f"{prefix}mlp.dense_4h_to_h.weight": (width, shape.ffn // ways),
        }
    return shapes


def _without_padding(found: Mapping[str, Shape], shape: DecoderShape, ways: int) -> dict[str, Shape]:
    """Megatron pads the vocabulary, so more rows than needed are accepted."""
    rows = -(-shape.vocabulary // ways)
    tables = {name for name in found if name in ("embedding.word_embeddings.weight", "output_layer.weight")}
    return {name: (min(size[0], rows), *size[1:]) if name in tables and size else size for name, size in found.items()}


@dataclass(frozen=True)
class MegatronWeights:
    """Memory-mapped shards of all tensor parallel ranks. A weight is read lazily, when it is called for."""

    shape: DecoderShape
    shards: list[dict[str, torch.Tensor]]

    def __call__(self, name: str) -> torch.Tensor:
        if name in ("embed_tokens.weight", "lm_head.weight"):
            own = "embedding.word_embeddings.weight" if name.startswith("embed") else "output_layer.weight"
            return self._joined(own, 0)[: self.shape.vocabulary]
        if name == "norm.weight":
            return self.shards[0]["encoder.final_layernorm.weight"]
        layer, part = re.fullmatch(r"layers\.(\d+)\.(.+)\.weight", name).groups()  # type: ignore[union-attr]
        prefix = f"encoder.layers.{layer}."
        if part.endswith("layernorm"):
            return self.shards[0][f"{prefix}{part}.weight"]
        if part in ("self_attn.o_proj", "mlp.down_proj"):
            own = "self_attention.dense" if part.endswith("o_proj") else "mlp.dense_4h_to_h"
            return self._joined(f"{prefix}{own}.weight", 1)
        if part.startswith("mlp."):
            return self._gate_or_up(f"{prefix}mlp.dense_h_to_4h.weight", part == "mlp.up_proj")
        return self._attention(f"{prefix}self_attention.query_key_value.weight", part.removeprefix("self_attn."))

    def _joined(self, name: str, dimension: int) -> torch.Tensor:
        import torch

        return torch.cat([shard[name] for shard in self.shards], dimension)

    def _gate_or_up(self, name: str, is_up: bool) -> torch.Tensor:
        """Each shard has its part of the gate, then its part of up."""
        import torch

        return torch.cat([shard[name].chunk(2)[is_up] for shard in self.shards])

    def _attention(self, name: str, part: str) -> torch.Tensor:
        """Rows are grouped by KV head: its query heads, then its key, then its value."""
        shape = self.shape
        queries = shape.heads // shape.kv_heads
        groups = self._joined(name, 0).view(shape.kv_heads, queries + 2, shape.head_size, shape.width)
        rows = {"q_proj": slice(queries), "k_proj": slice(queries, queries + 1), "v_proj": slice(queries + 1, None)}
        return groups[:, rows[part]].reshape(-1, shape.width)
