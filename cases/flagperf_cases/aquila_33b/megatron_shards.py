"""Megatron's checkpoints: which files there are, and the weights of a tensor parallel rank from its pipeline stages.

Two programs write them. That of the published checkpoint nests weights below `language_model`; Megatron-core has flat
names below `decoder`. Both split weights over tensor parallel ranks in the same way, and both number the layers of a
pipeline stage from 0. Here, weights have the first one's names, with dots, and layers are numbered through all stages.
Importable without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flagperf.errors import BadInput
from flagperf_cases.data_files import is_there, read_lines, shown

T = TypeVar("T")

ITERATION = "latest_checkpointed_iteration.txt"
WEIGHTS = "model_optim_rng.pt"
ADVICE = (
    "the published checkpoint has ckpts/latest_checkpointed_iteration.txt and "
    "ckpts/iter_*/mp_rank_*/model_optim_rng.pt; model.checkpoint=none starts from random weights"
)
CONVERT = (
    "have Megatron-LM write it as files of each rank, by loading it with --ckpt-convert-format torch and "
    "--ckpt-convert-save FOLDER"
)
IGNORED = ("_extra_state", "inv_freq")
"""Module states that are not weights."""
CORE_NAMES = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "self_attention.linear_qkv.weight": "self_attention.query_key_value.weight",
    "self_attention.linear_proj.weight": "self_attention.dense.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.weight": "mlp.dense_h_to_4h.weight",
    "mlp.linear_fc2.weight": "mlp.dense_4h_to_h.weight",
}
"""Of a layer in Megatron-core, whose norms may be fused with the product after them."""
_RANK = re.compile(r"mp_rank_(\d{2})(?:_(\d{3}))?")
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.(.+)")
_MAX_DEPTH = 8

Grid = list[list[Path]]
"""Files by tensor parallel rank and pipeline stage."""


def find_shards(folder: Path) -> Grid:
    """Of the iteration that the folder names as its latest."""
    iteration = read_lines(folder / ITERATION, ADVICE)[0].strip()
    if not re.fullmatch(r"[0-9]{1,18}|release", iteration):
        raise BadInput(f"{folder / ITERATION} should hold a number like 135000, not {shown(iteration)!r}; {ADVICE}")
    home = folder / (iteration if iteration == "release" else f"iter_{int(iteration):07d}")
    _refuse_distributed(home)
    names = sorted(path.name for path in home.glob("mp_rank_*") if is_there(path / WEIGHTS))
    ranks = [(int(found[1]), int(found[2] or 0)) for found in map(_RANK.fullmatch, names) if found]
    ways, stages = (1 + max((rank[axis] for rank in ranks), default=-1) for axis in range(2))
    grid = [[_place(home, rank, stage, stages) for stage in range(stages)] for rank in range(ways)]
    if not names or names != [path.parent.name for row in grid for path in row]:
        raise BadInput(
            f"{home} should have a folder with {WEIGHTS} for each tensor parallel rank, mp_rank_00, mp_rank_01 and so "
            "on, and with pipeline stages for each rank and stage, mp_rank_00_000, mp_rank_00_001 and so on, without "
            f"gaps; found: {shown(', '.join(names), 200) or 'none'}; {ADVICE}"
        )
    return grid


def _place(home: Path, rank: int, stage: int, stages: int) -> Path:
    name = f"mp_rank_{rank:02d}" if stages == 1 else f"mp_rank_{rank:02d}_{stage:03d}"
    return home / name / WEIGHTS


def _refuse_distributed(home: Path) -> None:
    """Megatron-core's newer forms have one part of each weight per file, whatever the rank."""
    if next(home.glob("*.distcp"), None) or (home / "metadata.json").exists():
        raise BadInput(f"{home} is a checkpoint in Megatron-core's distributed form (torch_dist or zarr); {CONVERT}")


def stage_weights(path: Path, content: Any, kind: type[T]) -> dict[str, T]:
    """The weights in one file, by the names of the published checkpoint."""
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        if isinstance(content, dict) and "model0" in content:
            raise BadInput(f"{path} has the chunks of a virtual pipeline; {CONVERT} without a virtual pipeline")
        raise BadInput(f"{path} has no weights under `model`; {ADVICE}")
    if isinstance(model.get("language_model"), dict):
        flat = _flat(path, model["language_model"])
    elif any(str(name).startswith(("decoder.", "embedding.")) for name in model):
        flat = {_core_name(name): value for name, value in _flat(path, model).items()}
    else:
        raise BadInput(
            f"{path} has no weights under `model` and there `language_model`, nor names as Megatron-core has them "
            f"(decoder.layers.0.self_attention.linear_qkv.weight); {ADVICE}"
        )
    return {name: value for name, value in flat.items() if isinstance(value, kind) and not name.endswith(IGNORED)}


def _flat(path: Path, state: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise BadInput(f"{path} has weights that are nested too deeply; {ADVICE}")
    flat: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not name.isprintable():
            raise BadInput(f"{path} has a weight whose name is no text, {shown(name)!r}; {ADVICE}")
        is_leaf = not isinstance(value, dict)
        flat |= {f"{prefix}{name}": value} if is_leaf else _flat(path, value, f"{prefix}{name}.", depth + 1)
    return flat


def _core_name(name: str) -> str:
    name = f"encoder.{name.removeprefix('decoder.')}" if name.startswith("decoder.") else name
    layer = _LAYER.fullmatch(name)
    return f"encoder.layers.{layer[1]}.{CORE_NAMES.get(layer[2], layer[2])}" if layer else name


def joined_stages(stages: Sequence[Mapping[str, T]], *, tied: bool) -> dict[str, T]:
    """All weights of a tensor parallel rank, with layers numbered through the stages."""
    weights: dict[str, T] = {}
    first = 0
    for stage in stages:
        numbers = [int(found[1]) for found in map(_LAYER.fullmatch, stage) if found]
        weights |= {_renumbered(name, first): value for name, value in stage.items()}
        first += 1 + max(numbers, default=-1)
    if tied and len(stages) > 1:
        weights.pop("output_layer.weight", None)  # the last stage's copy of the embedding
    return weights


def _renumbered(name: str, first: int) -> str:
    layer = _LAYER.fullmatch(name)
    return f"encoder.layers.{first + int(layer[1])}.{layer[2]}" if layer else name
