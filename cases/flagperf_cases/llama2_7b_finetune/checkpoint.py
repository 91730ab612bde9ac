"""The Hugging Face folder of a Llama model: checks of its files. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import check_shapes, find_weights, layer_number, read_shapes
from flagperf_cases.data_files import is_there, read_json_object, require_file, shown
from flagperf_cases.llama2_7b_finetune.tokenizer import SentencePieceTokenizer
from flagperf_cases.llama_checkpoint import check_llama_config, llama_shapes
from flagperf_cases.tokenizer_files import check_vocabulary

CHECKPOINT = "llama2_7b_hf"
GET_CHECKPOINT = (
    "download config.json, tokenizer.model and the weights of https://huggingface.co/meta-llama/Llama-2-7b-hf into the "
    f"folder {CHECKPOINT} of --data-dir"
)
FIT_CHECKPOINT = "set model.* to the values of that checkpoint, or model.checkpoint=false to start from random weights"

Model = dict[str, Any]
"""The `model` values of a run."""


def check_tokenizer(folder: Path, vocabulary: int) -> SentencePieceTokenizer:
    path = require_file(folder / "tokenizer.model", GET_CHECKPOINT)
    tokenizer = SentencePieceTokenizer(path)
    check_vocabulary(path, tokenizer.num_tokens, vocabulary, GET_CHECKPOINT)
    return tokenizer


def check_checkpoint(folder: Path, model: Model) -> list[Path]:
    """config.json and the files of the weights."""
    path = folder / "config.json"
    _check_config(path, read_json_object(path, GET_CHECKPOINT), model)
    _check_others(folder)
    files = find_weights(folder, GET_CHECKPOINT)
    shapes = read_shapes(files, GET_CHECKPOINT)
    used = {name: shape for name, shape in shapes.items() if is_used(name, model["layers"], tied=model["tied"])}
    check_shapes(files[0], used, llama_shapes(model), FIT_CHECKPOINT)
    return [path, *files]


def _check_others(folder: Path) -> None:
    """Files that transformers reads or obeys without being asked, if they are there."""
    if is_there(folder / "generation_config.json"):
        read_json_object(folder / "generation_config.json", GET_CHECKPOINT)
    if is_there(folder / "adapter_config.json"):
        raise BadInput(f"{folder} has adapter_config.json: it is an adapter, not a whole model; {GET_CHECKPOINT}")


def is_used(name: str, num_layers: int, *, tied: bool) -> bool:
    """False for layers beyond `num_layers`, for a second copy of tied weights, and for the rotary frequencies that old
    folders hold although every model computes them itself."""
    if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight"):
        return False
    return layer_number(name) < num_layers


def _check_config(path: Path, config: dict[str, Any], model: Model) -> None:
    if config.get("model_type") != "llama":
        kind = shown(config.get("model_type"))
        raise BadInput(f"{path} is of a model of type {kind!r}, not llama; {GET_CHECKPOINT}")
    check_llama_config(path, config, model, FIT_CHECKPOINT)
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers < model["layers"]:
        raise BadInput(
            f"{path} is of a model with num_hidden_layers={shown(layers)}, fewer than model.layers={model['layers']}; "
            f"{FIT_CHECKPOINT}"
        )
