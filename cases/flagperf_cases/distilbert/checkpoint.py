"""The published checkpoint: which weights it has to hold, and checks of its files. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import (
    Shape,
    check_config_value,
    check_shapes,
    find_weights,
    layer_number,
    read_shapes,
)
from flagperf_cases.data_files import read_json_object, shown
from flagperf_cases.tokenizer_files import PADDING, read_words

CHECKPOINT = "distilbert-base-uncased"
GET_CHECKPOINT = (
    f"download config.json, vocab.txt and model.safetensors of {CHECKPOINT} (https://huggingface.co/{CHECKPOINT}) "
    f"into the folder {CHECKPOINT} of --data-dir"
)
FIT_CHECKPOINT = f"it has to be {CHECKPOINT}, with model.* set to the values of that checkpoint"
FIT_VALUE = "set it to that, or model.checkpoint=false to start from random weights"

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
UNUSED = ("vocab_", "pre_classifier.", "classifier.")
"""Weights of a checkpoint that are not loaded: the classifier always starts random."""

POSITIONS = "distilbert.embeddings.position_embeddings.weight"

T = TypeVar("T")


def check_vocabulary(path: Path, model: Mapping[str, Any]) -> Path:
    words, size = read_words(path, SPECIAL_WORDS, GET_CHECKPOINT), model["vocabulary"]
    if len(words) > size or len(words) < (size if model["checkpoint"] else size - PADDING + 1):
        fewer_or_more = "more" if len(words) > size else "fewer"
        raise BadInput(
            f"{path} has {len(words)} words, {fewer_or_more} than model.vocabulary={size}; "
            f"set that to {len(words)} if this is the right file, else {GET_CHECKPOINT}"
        )
    return path


def check_checkpoint(folder: Path, model: Mapping[str, Any]) -> list[Path]:
    """The files that the weights are read from, checked against `model`, the model.* values of this run."""
    check_config(folder / "config.json", model)
    weights = find_weights(folder, GET_CHECKPOINT)
    found = encoder_part(read_shapes(weights, GET_CHECKPOINT), model["layers"])
    if found.get(POSITIONS):
        rows, *rest = found[POSITIONS]
        found[POSITIONS] = (min(rows, model["sequence"]), *rest)
    check_shapes(weights[0], found, encoder_shapes(model), FIT_CHECKPOINT)
    return [folder / "config.json", *weights]


def check_config(path: Path, model: Mapping[str, Any]) -> None:
    """Checks what shapes cannot show (heads, activation), and what reads better by name than as a shape."""
    config = read_json_object(path, GET_CHECKPOINT)
    if config.get("model_type", "distilbert") != "distilbert" or config.get("activation", "gelu") != "gelu":
        kind = f"model_type {shown(config.get('model_type'))!r}, activation {shown(config.get('activation'))!r}"
        raise BadInput(f"{path} is not of a DistilBERT with gelu ({kind}); {GET_CHECKPOINT}")
    for name, key in (("dim", "width"), ("hidden_dim", "ffn"), ("n_heads", "heads"), ("vocab_size", "vocabulary")):
        check_config_value(path, name, _size(path, config, name), key, model[key], FIT_VALUE)
    for name, key in (("n_layers", "layers"), ("max_position_embeddings", "sequence")):
        if _size(path, config, name) < model[key]:
            raise BadInput(
                f"{path} is of a model with {name}={config[name]}, fewer than model.{key}={model[key]}; "
                f"lower it, or set model.checkpoint=false to start from random weights"
            )


def _size(path: Path, config: Mapping[str, Any], name: str) -> int:
    if type(config.get(name)) is not int:
        found = f"is {shown(repr(config[name]))}, not a whole number" if name in config else "is missing"
        raise BadInput(f"{path}: {name} {found}; {GET_CHECKPOINT}")
    return int(config[name])


def encoder_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    """Of every weight of the encoder, by the names that transformers uses."""
    width, ffn = model["width"], model["ffn"]
    shapes: dict[str, Shape] = {
        "distilbert.embeddings.word_embeddings.weight": (model["vocabulary"], width),
        POSITIONS: (model["sequence"], width),
        **_norm("distilbert.embeddings.LayerNorm", width),
    }
    for index in range(model["layers"]):
        layer = f"distilbert.transformer.layer.{index}"
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes |= _linear(f"{layer}.attention.{name}", width, width)
        shapes |= _norm(f"{layer}.sa_layer_norm", width)
        shapes |= _linear(f"{layer}.ffn.lin1", width, ffn)
        shapes |= _linear(f"{layer}.ffn.lin2", ffn, width)
        shapes |= _norm(f"{layer}.output_layer_norm", width)
    return shapes


def _linear(name: str, inputs: int, outputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def encoder_part(state: Mapping[str, T], num_layers: int) -> dict[str, T]:
    """The weights of the encoder's first layers, from a checkpoint that was saved with or without a head."""
    used = {name: value for name, value in state.items() if not name.startswith(UNUSED)}
    if not any(name.startswith("distilbert.") for name in used):
        used = {f"distilbert.{name}": value for name, value in used.items()}
    return {name: value for name, value in used.items() if layer_number(name) < num_layers}
