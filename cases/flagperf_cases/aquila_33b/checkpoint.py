"""Aquila's weights: Megatron's tensor parallel shards as published, or a Hugging Face folder.

Both give one whole weight at a time, by the decoder's own name, so that any number of ranks can take their slices and
none holds the whole model. Pickles are read without running any code that they name. Importable without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.huggingface_checkpoint import Weights, check_huggingface, open_huggingface
from flagperf_cases.checkpoint_files import Shape, check_shapes, read_pickle
from flagperf_cases.data_files import read_lines
from flagperf_cases.decoder.shape import DecoderShape
from flagperf_cases.safe_pickle import PlaceholderUnpickler, check_mappable, safe_load

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

MEGATRON, HUGGINGFACE = "ckpts", "hf"
ITERATION = "latest_checkpointed_iteration.txt"
WEIGHTS = "model_optim_rng.pt"
ADVICE = (
    "the published checkpoint has ckpts/latest_checkpointed_iteration.txt and "
    "ckpts/iter_*/mp_rank_*/model_optim_rng.pt; model.checkpoint=none starts from random weights"
)
IGNORED = ("_extra_state", "inv_freq")
"""Module states of Megatron that are not weights."""


def check_checkpoint(folder: Path, format: str, shape: DecoderShape) -> list[Path]:
    """The files of a checkpoint that has every weight of this model in its shape. No weight is read."""
    if format == "huggingface":
        return check_huggingface(folder / HUGGINGFACE, shape)
    shards = megatron_shards(folder / MEGATRON)
    for path in shards:
        content = read_pickle(path, ADVICE, PlaceholderUnpickler)
        check_mappable(path, ADVICE)
        found = _without_padding(_weights(path, content, tuple), shape, len(shards))
        check_shapes(path, found, megatron_shapes(path, shape, len(shards)), ADVICE)
    return [folder / MEGATRON / ITERATION, *shards]


def open_checkpoint(folder: Path, format: str, shape: DecoderShape) -> Weights:
    if format == "huggingface":
        return open_huggingface(folder / HUGGINGFACE)
    import torch

    shards = megatron_shards(folder / MEGATRON)
    parts = [_weights(path, safe_load(path, ADVICE, mmap=True), torch.Tensor) for path in shards]
    return MegatronWeights(shape, parts)


# --- Megatron -------------------------------------------------------------------------------------------------------


def megatron_shards(folder: Path) -> list[Path]:
    """One file per tensor parallel rank, of the iteration that the folder names as its latest."""
    iteration = read_lines(folder / ITERATION, ADVICE)[0].strip()
    if not iteration.isascii() or not iteration.isdigit():
        raise BadInput(f"{folder / ITERATION} should hold a number like 135000, not {iteration[:60]!r}; {ADVICE}")
    home = folder / f"iter_{int(iteration):07d}"
    names = sorted(path.parent.name for path in home.glob(f"mp_rank_*/{WEIGHTS}"))
    wanted = [f"mp_rank_{rank:02d}" for rank in range(len(names))]
    if not names or names != wanted:
        found = ", ".join(names) or "none"
        raise BadInput(
            f"{home} should have a folder with {WEIGHTS} for each tensor parallel rank, mp_rank_00, mp_rank_01 and so "
            f"on, without gaps and without pipeline stages; found: {found}; {ADVICE}"
        )
    return [home / name / WEIGHTS for name in names]


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


def _weights(path: Path, content: Any, kind: type[T]) -> dict[str, T]:
    """By dotted names below `model` -> `language_model`."""
    state: Any = content
    for key in ("model", "language_model"):
        state = state.get(key) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        raise BadInput(f"{path} has no weights under `model` and there `language_model`; {ADVICE}")
    flat = _flat(state).items()
    return {name: value for name, value in flat if isinstance(value, kind) and not name.endswith(IGNORED)}


def _flat(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in state.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


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
