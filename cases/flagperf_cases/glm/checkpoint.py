"""The published checkpoint: a pickle that holds more than weights.

It is read without running any code that it names, see safe_pickle.py. Importable without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import Shape, check_shapes, layer_number
from flagperf_cases.data_files import read_lines
from flagperf_cases.safe_pickle import PlaceholderUnpickler, safe_load
from flagperf_cases.torch_files import TensorShape, is_state, read_pickle

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

CHECKPOINT = "blocklm-large-blank"
ITERATION = "latest_checkpointed_iteration.txt"
WEIGHTS = "mp_rank_00_model_states.pt"
POSITIONS = ("transformer.position_embeddings.weight", "transformer.block_position_embeddings.weight")
GET_CHECKPOINT = (
    f"take the published checkpoint (GLM-Large, English, `{CHECKPOINT}`, of https://github.com/THUDM/GLM) and unpack "
    "it in the folder given as --data-dir, or set model.checkpoint=false to start from random weights"
)
FIT_CHECKPOINT = (
    "it has to be the published checkpoint, with model.* set to its values; model.checkpoint=false starts from random "
    "weights"
)


def check_checkpoint(folder: Path, model: Mapping[str, Any]) -> list[Path]:
    """The files of a checkpoint that has every weight of this model in its shape. No weight is read."""
    path = weights_file(folder)
    found = _used(_weights(path, read_pickle(path, GET_CHECKPOINT, PlaceholderUnpickler), TensorShape), model["layers"])
    wanted = weight_shapes(model)
    shapes = {name: _any_length(shape, wanted[name]) if name in POSITIONS else shape for name, shape in found.items()}
    check_shapes(path, shapes, wanted, FIT_CHECKPOINT)
    return [folder / ITERATION, path]


def load_checkpoint(model: Any, folder: Path) -> None:
    """Loads every weight of the model, or raises BadInput. A smaller model takes the first layers and positions; a
    longer one keeps its initial values for the positions that the checkpoint does not have."""
    import torch

    path = weights_file(folder)
    own = model.state_dict()
    found = _used(_weights(path, safe_load(path, GET_CHECKPOINT), torch.Tensor), len(model.transformer.layers))
    for name in POSITIONS:
        if name in found and found[name].shape[1:] == own[name].shape[1:]:
            rows = found[name][: len(own[name])].to(own[name].dtype)
            found[name] = torch.cat([rows, own[name][len(rows) :]])
    check_shapes(path, _shapes(found), _shapes(own), FIT_CHECKPOINT)
    model.load_state_dict(found)


def weights_file(folder: Path) -> Path:
    """The weights of the iteration that the folder names as its latest."""
    iteration = read_lines(folder / ITERATION, GET_CHECKPOINT)[0].strip()
    if not iteration.isascii() or not iteration.isalnum():
        raise BadInput(
            f"{folder / ITERATION} should hold the name of a folder like 200000, not {iteration[:60]!r}; "
            f"{GET_CHECKPOINT}"
        )
    return folder / iteration / WEIGHTS


def weight_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    width, ffn, positions = model["width"], model["ffn"], model["sequence"] + 1
    shapes: dict[str, Shape] = {"word_embeddings.weight": (model["vocabulary"], width)}
    shapes |= dict.fromkeys(POSITIONS, (positions, width))
    for layer in range(model["layers"]):
        prefix = f"transformer.layers.{layer}."
        for part, (rows, columns) in {
            "attention.query_key_value": (3 * width, width),
            "attention.dense": (width, width),
            "mlp.dense_h_to_4h": (ffn, width),
            "mlp.dense_4h_to_h": (width, ffn),
        }.items():
            shapes |= {f"{prefix}{part}.weight": (rows, columns), f"{prefix}{part}.bias": (rows,)}
        shapes |= _norm(f"{prefix}input_layernorm", width) | _norm(f"{prefix}post_attention_layernorm", width)
    return shapes | _norm("transformer.final_layernorm", width)


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _any_length(shape: Shape, wanted: Shape) -> Shape:
    return (wanted[0], *shape[1:])


def _weights(path: Path, content: Any, kind: type[T]) -> dict[str, T]:
    weights: Any = content.get("module") if isinstance(content, dict) else None
    if not is_state(weights, kind):
        raise BadInput(f"{path} has no weights under the key `module`; {GET_CHECKPOINT}")
    return dict(weights)


def _used(weights: Mapping[str, T], num_layers: int) -> dict[str, T]:
    return {name: weight for name, weight in weights.items() if layer_number(name) < num_layers}


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
