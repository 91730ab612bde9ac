"""DistilBERT with a classifier of two labels, from transformers, and its published checkpoint from disk."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from flagperf.errors import BadInput
from flagperf_cases.distilbert.data import CHECKPOINT, weights_file

HEADS = ("vocab_", "pre_classifier.", "classifier.")
"""Parts of a checkpoint that are not used: the classifier always starts random."""

POSITIONS = "distilbert.embeddings.position_embeddings.weight"


def build_model(values: Any, data_dir: Path | None = None) -> Any:
    config = DistilBertConfig(
        n_layers=values.layers, dim=values.width, n_heads=values.heads, hidden_dim=values.ffn,
        vocab_size=values.vocabulary, max_position_embeddings=values.sequence, dropout=values.dropout,
        attention_dropout=values.attention_dropout, seq_classif_dropout=values.classifier_dropout, num_labels=2,
    )  # fmt: skip
    model = DistilBertForSequenceClassification(config)
    if values.checkpoint:
        assert data_dir is not None, "check_files has asked for --data-dir"
        load_checkpoint(model, data_dir / CHECKPOINT)
    return model


def matmul_parameters(values: Any) -> int:
    """Weights of the matrix products of all layers. The classifier sees one position per sentence and is left out."""
    return int(values.layers * (4 * values.width**2 + 2 * values.width * values.ffn))


def load_checkpoint(model: Any, folder: Path) -> None:
    """Every weight of the encoder from `folder`: the first layers and positions, where the model has fewer."""
    path = weights_file(folder)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("distilbert.")}
    found = _encoder_weights(path, model.config.n_layers)
    if POSITIONS in found:
        found[POSITIONS] = found[POSITIONS][: model.config.max_position_embeddings]
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} is unknown" for name in found if name not in wanted]
    problems += [
        f"{name} has the shape {tuple(found[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BadInput(
            f"{path} does not fit the model of this run: {', '.join(problems[:3])}{more}; "
            f"it has to be {CHECKPOINT}, and model.* as that checkpoint was made"
        )
    model.load_state_dict(found, strict=False)


def _encoder_weights(path: Path, num_layers: int) -> dict[str, torch.Tensor]:
    state = {name: tensor for name, tensor in _read(path).items() if not name.startswith(HEADS)}
    if not any(name.startswith("distilbert.") for name in state):  # saved without a head
        state = {f"distilbert.{name}": tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in state.items() if _layer(name) < num_layers}


def _layer(name: str) -> int:
    match = re.match(r"distilbert\.transformer\.layer\.(\d+)\.", name)
    return int(match.group(1)) if match else -1


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Tensors only: a pickle that holds anything else is refused, since reading one can run any code."""
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, TypeError, ValueError) as error:
        raise BadInput(
            f"cannot read the weights {path}: {str(error).splitlines()[0]}; download {CHECKPOINT} again"
        ) from None
