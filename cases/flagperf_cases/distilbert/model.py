"""DistilBERT with a two-label classifier, from transformers, and its published checkpoint from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from flagperf_cases.checkpoint_files import check_shapes, find_weights, read_tensors
from flagperf_cases.distilbert.checkpoint import CHECKPOINT, FIT_CHECKPOINT, GET_CHECKPOINT, POSITIONS, encoder_part


def build_model(values: Any, data_dir: Path | None = None) -> Any:
    config = DistilBertConfig(
        n_layers=values.layers,
        dim=values.width,
        n_heads=values.heads,
        hidden_dim=values.ffn,
        vocab_size=values.vocabulary,
        max_position_embeddings=values.sequence,
        dropout=values.dropout,
        attention_dropout=values.attention_dropout,
        seq_classif_dropout=values.classifier_dropout,
        num_labels=2,
    )
    model = DistilBertForSequenceClassification(config)
    if values.checkpoint:
        assert data_dir is not None, "check_files requires --data-dir"
        load_checkpoint(model, data_dir / CHECKPOINT)
    return model


def matmul_parameters(values: Any) -> int:
    """Weights of the matrix products of all layers. The classifier sees one position per row and does not count."""
    return int(values.layers * (4 * values.width**2 + 2 * values.width * values.ffn))


def load_checkpoint(model: Any, folder: Path) -> None:
    """Loads every weight of the encoder. A model with fewer layers or positions takes the first ones."""
    files = find_weights(folder, GET_CHECKPOINT)
    found = encoder_part(read_tensors(files, GET_CHECKPOINT), model.config.n_layers)
    if POSITIONS in found:
        found[POSITIONS] = found[POSITIONS][: model.config.max_position_embeddings]
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("distilbert.")}
    check_shapes(files[0], _shapes(found), _shapes(wanted), FIT_CHECKPOINT)
    model.load_state_dict(found, strict=False)


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
