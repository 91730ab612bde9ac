"""The published checkpoint: a pickle whose weights are wanted and whose other contents are not.

It is read without running anything that it names. Settings of the program that wrote it (an argparse.Namespace, classes
of that program) become empty stand-ins; what would have to be called is refused. Importable without torch.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from flagperf.errors import BadInput
from flagperf_cases.files import read_lines
from flagperf_cases.weights import Shape, ShapeUnpickler, check_shapes, read_pickle

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
    "it has to be the published checkpoint and model.* as that was made, or set model.checkpoint=false to start from "
    "random weights"
)


def check_checkpoint(folder: Path, model: Mapping[str, Any]) -> list[Path]:
    """The files of a checkpoint that has every weight of this model in its shape, from its head alone."""
    path = weights_file(folder)
    found = _used(_weights(path, read_pickle(path, GET_CHECKPOINT, _StandInUnpickler), tuple), model["layers"])
    wanted = weight_shapes(model)
    fitting = {name: _any_length(shape, wanted[name]) if name in POSITIONS else shape for name, shape in found.items()}
    check_shapes(path, fitting, wanted, FIT_CHECKPOINT)
    return [folder / ITERATION, path]


def load_checkpoint(model: Any, folder: Path) -> None:
    """Every weight of the model, or BadInput. A smaller model takes the first layers and positions; a longer one keeps
    its own rows for the positions that the checkpoint does not have."""
    import torch

    path = weights_file(folder)
    own = model.state_dict()
    found = _used(_weights(path, _read(path), torch.Tensor), len(model.transformer.layers))
    for name in POSITIONS:
        if name in found and found[name].shape[1:] == own[name].shape[1:]:
            rows = found[name][: len(own[name])].to(own[name].dtype)
            found[name] = torch.cat([rows, own[name][len(rows) :]])
    check_shapes(path, _shapes(found), _shapes(own), FIT_CHECKPOINT)
    model.load_state_dict(found)


def weights_file(folder: Path) -> Path:
    """The weights of the iteration that the folder says is its latest."""
    iteration = read_lines(folder / ITERATION, GET_CHECKPOINT)[0].strip()
    if not iteration.isalnum():
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
            "attention.query_key_value": (3 * width, width), "attention.dense": (width, width),
            "mlp.dense_h_to_4h": (ffn, width), "mlp.dense_4h_to_h": (width, ffn),
        }.items():  # fmt: skip
            shapes |= {f"{prefix}{part}.weight": (rows, columns), f"{prefix}{part}.bias": (rows,)}
        shapes |= _norm(f"{prefix}input_layernorm", width) | _norm(f"{prefix}post_attention_layernorm", width)
    return shapes | _norm("transformer.final_layernorm", width)


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _any_length(shape: Shape, wanted: Shape) -> Shape:
    return (wanted[0], *shape[1:])


def _weights(path: Path, content: Any, kind: type[T]) -> dict[str, T]:
    weights = content.get("module") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(weight, kind) for weight in weights.values()):
        raise BadInput(f"{path} has no weights under the key `module`; {GET_CHECKPOINT}")
    return weights


def _used(weights: Mapping[str, T], num_layers: int) -> dict[str, T]:
    return {name: weight for name, weight in weights.items() if _layer(name) < num_layers}


def _layer(name: str) -> int:
    match = re.match(r"transformer\.layers\.(\d+)\.", name)
    return int(match.group(1)) if match else -1


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _read(path: Path) -> Any:
    import torch

    try:
        with _allowed(path):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, TypeError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read the weights {path}: {_first_line(error)}; {GET_CHECKPOINT}") from None


def _first_line(error: Exception) -> str:
    """Without torch's advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)|(it calls .* is not data)", str(error))
    if refused:
        return refused.group(2) or f"it names {refused.group(1)}, which is not data"
    return str(error).strip().partition("\n")[0] or type(error).__name__


# --- what a checkpoint may name -------------------------------------------------------------------------------------

MAKERS_OF_DATA = (
    "_codecs.encode", "builtins.set", "builtins.bytearray", "builtins.complex", "collections.Counter", "torch.Size",
    "torch.device", "numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.dtype", "numpy.ndarray",
)  # fmt: skip
"""What settings and states of random numbers are pickled with. Their stand-ins may be called, and do nothing."""


class _StandIn:
    """An object that keeps nothing of what the pickle says of it."""

    def __new__(cls, *_arguments: Any) -> _StandIn:
        return object.__new__(cls)

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _NeverCalled(type):
    """Objects of a class are made without calling it. A pickle that does call something is after what that does."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"it calls {cls.__module__}.{cls.__qualname__}, which is not data")


def _stand_in(module: str, name: str) -> type:
    kind = type if f"{module}.{name}".startswith(MAKERS_OF_DATA) else _NeverCalled
    return kind(name, (_StandIn,), {"__module__": module, "__qualname__": name})


class _StandInUnpickler(ShapeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except pickle.UnpicklingError:
            # torch.save writes protocol 2, which has the names of Python 2.
            return _stand_in("builtins" if module == "__builtin__" else module, name)


def _allowed(path: Path) -> contextlib.AbstractContextManager[Any]:
    """For torch's own reader: everything that the file names may be met, and only makers of data be called."""
    from torch import serialization

    if not hasattr(serialization, "get_unsafe_globals_in_checkpoint"):  # torch before 2.6 reads plain data only
        return contextlib.nullcontext()
    names = [name.rpartition(".") for name in serialization.get_unsafe_globals_in_checkpoint(path)]
    context: contextlib.AbstractContextManager[Any] = serialization.safe_globals(
        [_stand_in(module, name) for module, _, name in names if module]
    )
    return context
