"""The published checkpoint: a pickle whose weights are wanted and whose other contents are not.

It is read without running anything that it names. Settings of the program that wrote it (an argparse.Namespace, classes
of that program) become empty stand-ins; whatever would have to be called is refused.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch

from flagperf.errors import BadInput
from flagperf_cases.glm.data import GET_CHECKPOINT, weights_file

POSITIONS = ("transformer.position_embeddings.weight", "transformer.block_position_embeddings.weight")


def load_checkpoint(model: Any, folder: Path) -> None:
    """Every weight of the model, or BadInput. A smaller model takes the first layers and positions; a longer one keeps
    its own rows for the positions that the checkpoint does not have."""
    path = weights_file(folder)
    wanted = model.state_dict()
    num_layers = len(model.transformer.layers)
    found = {name: tensor for name, tensor in _weights(path).items() if _layer(name) < num_layers}
    for name in POSITIONS:
        if name in found and found[name].dim() == 2 and found[name].shape[1:] == wanted[name].shape[1:]:
            rows = found[name][: len(wanted[name])]
            found[name] = torch.cat([rows.to(wanted[name].dtype), wanted[name][len(rows) :]])
    problems = list(_differences(found, wanted))
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BadInput(
            f"{path} does not fit the model of this run: {', '.join(problems[:3])}{more}; "
            "it has to be the published checkpoint, and model.* as that was made"
        )
    model.load_state_dict(found)


def _differences(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> Iterable[str]:
    yield from (f"{name} is missing" for name in wanted if name not in found)
    yield from (f"{name} is unknown" for name in found if name not in wanted)
    for name, tensor in wanted.items():
        if name in found and found[name].shape != tensor.shape:
            yield f"{name} has the shape {tuple(found[name].shape)}, not {tuple(tensor.shape)}"


def _layer(name: str) -> int:
    match = re.match(r"transformer\.layers\.(\d+)\.", name)
    return int(match.group(1)) if match else -1


def _weights(path: Path) -> dict[str, torch.Tensor]:
    weights = _read(path)
    weights = weights.get("module") if isinstance(weights, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in weights.values()):
        raise BadInput(f"{path} has no weights under the key `module`; {GET_CHECKPOINT}")
    return weights


def _read(path: Path) -> Any:
    try:
        with _stand_ins(path):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, TypeError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read the weights {path}: {_first_line(error)}; {GET_CHECKPOINT}") from None


def _first_line(error: Exception) -> str:
    """Without torch's advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)|(it calls .* is not data)", str(error))
    if refused:
        return refused.group(2) or f"it names {refused.group(1)}, which is not data"
    return str(error).strip().partition("\n")[0] or type(error).__name__


# --- what a checkpoint may name -------------------------------------------------------------------------------------

MAKERS_OF_DATA = ("numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.dtype", "numpy.ndarray")
"""What states of random numbers are pickled with. Their stand-ins may be called, and do nothing."""


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


def _stand_ins(path: Path) -> contextlib.AbstractContextManager[Any]:
    """Everything that the file names may be met, and nothing but makers of data be called."""
    serialization = torch.serialization
    if not hasattr(serialization, "get_unsafe_globals_in_checkpoint"):  # torch before 2.6 reads plain data only
        return contextlib.nullcontext()
    names = serialization.get_unsafe_globals_in_checkpoint(path)
    return serialization.safe_globals([_stand_in(name) for name in names if "." in name])  # type: ignore[no-any-return]


def _stand_in(full_name: str) -> type:
    module, _, name = full_name.rpartition(".")
    kind = type if full_name.startswith(MAKERS_OF_DATA) else _NeverCalled
    return kind(name, (_StandIn,), {"__module__": module, "__qualname__": name})
