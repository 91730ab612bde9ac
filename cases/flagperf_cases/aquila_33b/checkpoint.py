"""Read Aquila's weights: Megatron's shards, as published or by Megatron-core, or a Hugging Face folder.

Both give one whole weight at a time, by the decoder's own name, so that any number of ranks can take their slices and
none holds the whole model. In this order: both, Megatron's files, its weights, a Hugging Face folder. Importable
without torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import (
    Shape,
    can_look_into,
    check_config_value,
    check_llama_config,
    check_mappable,
    check_shapes,
    find_weights,
    llama_shapes,
    load_saved,
    only_tensors,
    read_shapes,
    shapes_of,
)
from flagperf_cases.data_files import is_there, read_json_object, read_lines, require_file, shown
from flagperf_cases.decoder.layout import DecoderShape

if TYPE_CHECKING:
    import torch

MEGATRON, HUGGINGFACE = "ckpts", "hf"


def check_checkpoint(folder: Path, format: str, shape: DecoderShape) -> list[Path]:
    """Return the files of a checkpoint that has every weight of this model in its shape. No weight is read."""
    if format == "huggingface":
        return check_huggingface(folder / HUGGINGFACE, shape)
    shards = find_shards(folder / MEGATRON)
    files = [path for stages in shards for path in stages]
    if can_look_into(files):
        for stages in shards:
            weights = joined_stages([read_stage(path, device="meta") for path in stages], tied=shape.tied)
            found = _without_padding(shapes_of(weights), shape, len(shards))
            check_shapes(stages[0], found, megatron_shapes(stages[0], shape, len(shards)), GET_MEGATRON)
    for path in files:
        check_mappable(path, GET_MEGATRON)
    return [folder / MEGATRON / ITERATION, *files]


def open_checkpoint(folder: Path, format: str, shape: DecoderShape) -> Weights:
    """Return what gives the whole weight of each parameter of the decoder."""
    if format == "huggingface":
        return open_huggingface(folder / HUGGINGFACE)
    shards = [[read_stage(path, mmap=True) for path in stages] for stages in find_shards(folder / MEGATRON)]
    return MegatronWeights(shape, [joined_stages(stages, tied=shape.tied) for stages in shards])


# --- Megatron's files -------------------------------------------------------------------------------------------------

# Two programs write them. That of the published checkpoint nests weights below `language_model`; Megatron-core has flat
# names below `decoder`. Both split weights over tensor parallel ranks in the same way, and both number the layers of a
# pipeline stage from 0. Here, weights have the first one's names, with dots; layers are numbered through all stages.

ITERATION = "latest_checkpointed_iteration.txt"
WEIGHTS = "model_optim_rng.pt"
GET_MEGATRON = (
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
    """Find the files of the iteration that the folder names as its latest."""
    iteration = read_lines(folder / ITERATION, GET_MEGATRON)[0].strip()
    if not re.fullmatch(r"[0-9]{1,18}|release", iteration):
        raise BadInput(
            f"{folder / ITERATION} should hold a number like 135000, not {shown(iteration)!r}; {GET_MEGATRON}"
        )
    home = folder / (iteration if iteration == "release" else f"iter_{int(iteration):07d}")
    if next(home.glob("*.distcp"), None) or (home / "metadata.json").exists():  # one part of each weight per file
        raise BadInput(f"{home} is a checkpoint in Megatron-core's distributed form (torch_dist or zarr); {CONVERT}")
    names = sorted(path.name for path in home.glob("mp_rank_*") if is_there(path / WEIGHTS))
    ranks = [(int(found[1]), int(found[2] or 0)) for found in map(_RANK.fullmatch, names) if found]
    ways, stages = (1 + max((rank[axis] for rank in ranks), default=-1) for axis in range(2))
    name = "mp_rank_{:02d}" if stages == 1 else "mp_rank_{:02d}_{:03d}"
    grid = [[home / name.format(rank, stage) / WEIGHTS for stage in range(stages)] for rank in range(ways)]
    if not names or names != [path.parent.name for row in grid for path in row]:
        raise BadInput(
            f"{home} should have a folder with {WEIGHTS} for each tensor parallel rank, mp_rank_00, mp_rank_01 and so "
            "on, and with pipeline stages for each rank and stage, mp_rank_00_000, mp_rank_00_001 and so on, without "
            f"gaps; found: {shown(', '.join(names), 200) or 'none'}; {GET_MEGATRON}"
        )
    return [[require_file(path, GET_MEGATRON) for path in row] for row in grid]


def read_stage(path: Path, *, device: str = "cpu", mmap: bool = False) -> dict[str, torch.Tensor]:
    """Read the weights in one file, by the names of the published checkpoint."""
    import torch

    content = load_saved(path, GET_MEGATRON, device=device, mmap=mmap)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        if isinstance(content, dict) and "model0" in content:
            raise BadInput(f"{path} has the chunks of a virtual pipeline; {CONVERT} without a virtual pipeline")
        raise BadInput(f"{path} has no weights under `model`; {GET_MEGATRON}")
    if isinstance(model.get("language_model"), dict):
        flat = _flat(path, model["language_model"])
    elif any(str(name).startswith(("decoder.", "embedding.")) for name in model):
        flat = {}
        for name, value in _flat(path, model).items():
            own = f"encoder.{name.removeprefix('decoder.')}" if name.startswith("decoder.") else name
            layer = _LAYER.fullmatch(own)
            own = f"encoder.layers.{layer[1]}.{CORE_NAMES.get(layer[2], layer[2])}" if layer else own
            flat[own] = value
    else:
        raise BadInput(
            f"{path} has no weights under `model` and there `language_model`, nor names as Megatron-core has them "
            f"(decoder.layers.0.self_attention.linear_qkv.weight); {GET_MEGATRON}"
        )
    weights = {name: value for name, value in flat.items() if isinstance(value, torch.Tensor)}
    return {name: value for name, value in weights.items() if not name.endswith(IGNORED)}


def _flat(path: Path, state: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise BadInput(f"{path} has weights that are nested too deeply; {GET_MEGATRON}")
    flat: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not name.isprintable():
            raise BadInput(f"{path} has a weight whose name is not text, {shown(name)!r}; {GET_MEGATRON}")
        is_leaf = not isinstance(value, dict)
        flat |= {f"{prefix}{name}": value} if is_leaf else _flat(path, value, f"{prefix}{name}.", depth + 1)
    return flat


def joined_stages(stages: Sequence[Mapping[str, torch.Tensor]], *, tied: bool) -> dict[str, torch.Tensor]:
    """Return all weights of a tensor parallel rank, with layers numbered through the stages."""
    weights: dict[str, torch.Tensor] = {}
    first = 0
    for stage in stages:
        last = first - 1
        for name, value in stage.items():
            layer = _LAYER.fullmatch(name)
            number = first + int(layer[1]) if layer else -1
            weights[f"encoder.layers.{number}.{layer[2]}" if layer else name] = value
            last = max(last, number)
        first = last + 1
    if tied and len(stages) > 1:
        weights.pop("output_layer.weight", None)  # the last stage's copy of the embedding
    return weights


# --- Megatron's weights -----------------------------------------------------------------------------------------------


def megatron_shapes(path: Path, shape: DecoderShape, ways: int) -> dict[str, Shape]:
    for name in ("kv_heads", "heads", "ffn"):
        if getattr(shape, name) % ways:
            raise BadInput(f"{path}: {ways} shards do not divide model.{name}={getattr(shape, name)}; {GET_MEGATRON}")
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
    """Return the shapes with as many rows of the vocabulary as are needed: Megatron pads it."""
    rows = -(-shape.vocabulary // ways)
    tables = {name for name in found if name in ("embedding.word_embeddings.weight", "output_layer.weight")}
    return {name: (min(size[0], rows), *size[1:]) if name in tables and size else size for name, size in found.items()}


@dataclass(frozen=True)
class MegatronWeights:
    """Gives weights from the memory-mapped shards of all tensor parallel ranks. A weight is read lazily, when it is
    called for."""

    shape: DecoderShape
    shards: list[dict[str, torch.Tensor]]

    def __call__(self, name: str) -> torch.Tensor:
        import torch

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
            # Each shard has its part of the gate, then its part of up.
            name, is_up = f"{prefix}mlp.dense_h_to_4h.weight", part == "mlp.up_proj"
            return torch.cat([shard[name].chunk(2)[is_up] for shard in self.shards])
        return self._attention(f"{prefix}self_attention.query_key_value.weight", part.removeprefix("self_attn."))

    def _joined(self, name: str, dimension: int) -> torch.Tensor:
        import torch

        return torch.cat([shard[name] for shard in self.shards], dimension)

    def _attention(self, name: str, part: str) -> torch.Tensor:
        """Return one of query, key and value. Rows are grouped by KV head: its query heads, then its key, then its
        value."""
        shape = self.shape
        queries = shape.heads // shape.kv_heads
        groups = self._joined(name, 0).view(shape.kv_heads, queries + 2, shape.head_size, shape.width)
        rows = {"q_proj": slice(queries), "k_proj": slice(queries, queries + 1), "v_proj": slice(queries + 1, None)}
        return groups[:, rows[part]].reshape(-1, shape.width)


# --- a Hugging Face folder --------------------------------------------------------------------------------------------

CONFIG = "config.json"
TYPES = ("llama", "aquila")
GET_HUGGINGFACE = (
    "with model.checkpoint=huggingface the folder hf of --data-dir has config.json and the weights, as downloaded; set "
    "model.* as its config.json says"
)

Weights = Callable[[str], "torch.Tensor"]
"""From the decoder's name of a parameter to the whole weight."""


def check_huggingface(folder: Path, shape: DecoderShape) -> list[Path]:
    """Return the files of a folder that has every weight of this model in its shape. No weight is read."""
    config = folder / CONFIG
    check_config(config, read_json_object(config, GET_HUGGINGFACE), shape)
    files = find_weights(folder, GET_HUGGINGFACE)
    if can_look_into(files):
        shapes = read_shapes(files, GET_HUGGINGFACE)
        found = {name: size for name, size in shapes.items() if not name.endswith("inv_freq")}
        if shape.tied:
            found.pop("lm_head.weight", None)
        check_shapes(folder, found, llama_shapes(asdict(shape)), GET_HUGGINGFACE)
    for path in files:
        if path.suffix == ".bin":
            check_mappable(path, GET_HUGGINGFACE)
    return [config, *files]


def check_config(path: Path, config: dict[str, Any], shape: DecoderShape) -> None:
    """Check what the shapes of the weights cannot show: heads, positions, norms."""
    if config.get("model_type") not in TYPES:
        own_type = shown(config.get("model_type"))
        raise BadInput(f"{path} is of a model of type {own_type!r}, not {' or '.join(TYPES)}; {GET_HUGGINGFACE}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        raise BadInput(
            f"{path} has rotary positions of type {shown(kind)!r}, and the decoder supports the default type only; "
            "take another model"
        )
    check_llama_config(path, config, asdict(shape), GET_HUGGINGFACE)
    for name, key, found in (
        ("num_hidden_layers", "layers", config.get("num_hidden_layers")),
        ("rms_norm_eps", "norm_eps", config.get("rms_norm_eps")),
        ("rope_theta", "rope_base", rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
    ):
        check_config_value(path, name, found, key, getattr(shape, key), GET_HUGGINGFACE)


def open_huggingface(folder: Path) -> Weights:
    homes: dict[str, Callable[[str], torch.Tensor]] = {}
    for path in find_weights(folder, GET_HUGGINGFACE):
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            file: Any = safe_open(path, "pt")
            homes |= dict.fromkeys(file.keys(), file.get_tensor)
        elif path.suffix != ".json":
            tensors = only_tensors(path, load_saved(path, GET_HUGGINGFACE, mmap=True), GET_HUGGINGFACE)
            homes |= dict.fromkeys(tensors, tensors.__getitem__)

    def weight(name: str) -> torch.Tensor:
        full_name = name if name.startswith("lm_head.") else f"model.{name}"
        return homes[full_name](full_name)

    return weight
