"""check_files: what a run reads from --data-dir, looked through before any process of it starts. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.llama2_7b_finetune import made_up, mmlu
from flagperf_cases.llama2_7b_finetune.data import CHECKPOINT, FOLDER, SPLITS, made_up_words, read_dialogues
from flagperf_cases.llama2_7b_finetune.tokens import SentencePieces

INDEX = "model.safetensors.index.json"
GET_CHECKPOINT = (
    f"download config.json, tokenizer.model and the .safetensors files of https://huggingface.co/meta-llama/Llama-2-7b-hf "
    f"into the folder {CHECKPOINT} of --data-dir"
)  # fmt: skip


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads. Raises BadInput for the first fault."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "samsum", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    if data_dir is None or not data_dir.is_dir():
        found = "no --data-dir was given" if data_dir is None else f"{data_dir} is not a folder"
        raise BadInput(
            f"{CHECKPOINT}/, {FOLDER}/ and {mmlu.FOLDER}/ are read from --data-dir, and {found}; "
            "the case's README says how to get them"
        )
    files: list[Path] = []
    if real_data:
        files += _checked_text(data_dir, values)
    if checkpoint:
        files += _checked_checkpoint(data_dir / CHECKPOINT, values["model"])
    return [_described(path, data_dir) for path in files]


# --- values ---------------------------------------------------------------------------------------------------------


def _check_values(values: dict[str, Any]) -> None:
    model = values["model"]
    for whole, part in (("width", "heads"), ("heads", "kv_heads")):
        if model[whole] % model[part]:
            raise BadInput(
                f"model.{whole}={model[whole]} cannot be shared by model.{part}={model[part]}; choose a multiple of it"
            )
    if model["width"] // model["heads"] % 2:
        raise BadInput(
            f"a head of {model['width'] // model['heads']} numbers cannot be rotated in pairs; "
            "choose model.width and model.heads so that it is even"
        )
    if model["sequence"] > model["positions"]:
        raise BadInput(
            f"model.sequence={model['sequence']} is more than model.positions={model['positions']}; lower it"
        )
    if not values["lora"]["targets"]:
        raise BadInput('lora.targets is empty: nothing would be trained; name layers, for example ["q_proj", "v_proj"]')
    _check_save_to(model["save_to"])
    if values["data"]["source"] == "synthetic":
        _check_made_up(values)


def _check_save_to(folder: str) -> None:
    if folder and not Path(folder).is_absolute():
        raise BadInput(f"model.save_to={folder} is relative, and workers have no folder of their own; give a full path")
    if folder and Path(folder).exists():
        raise BadInput(f"model.save_to={folder} exists already; name a folder that is yet to be made")


def _check_made_up(values: dict[str, Any]) -> None:
    data, evaluation, num_subjects = values["data"], values["evaluation"], len(made_up.SUBJECT_NAMES)
    for key in ("rows", "eval_rows"):
        if not data[key]:
            raise BadInput(
                f"data.source=synthetic makes as many rows as data.{key} says, and it is 0; set it, e.g. to 100"
            )
    num_words = made_up_words().num_tokens
    if values["model"]["vocabulary"] < num_words:
        raise BadInput(
            f"the made-up language has {num_words} words, more than model.vocabulary={values['model']['vocabulary']}; "
            f"set that to {num_words} or more"
        )
    if evaluation["subjects"] > num_subjects:
        raise BadInput(
            f"data.source=synthetic has {num_subjects} subjects, and evaluation.subjects={evaluation['subjects']}; "
            f"set it to {num_subjects} or less"
        )
    if evaluation["subjects"] and not evaluation["questions"]:
        raise BadInput(
            "data.source=synthetic makes as many questions per subject as evaluation.questions says, and it is 0; "
            "set it, e.g. to 60"
        )


# --- text -----------------------------------------------------------------------------------------------------------


def _checked_text(data_dir: Path, values: dict[str, Any]) -> list[Path]:
    tokenizer_path = data_dir / CHECKPOINT / "tokenizer.model"
    if not tokenizer_path.is_file():
        raise BadInput(f"{tokenizer_path} does not exist; {GET_CHECKPOINT}")
    tokenizer, vocabulary = SentencePieces(tokenizer_path), values["model"]["vocabulary"]
    if tokenizer.num_tokens > vocabulary:
        raise BadInput(
            f"{tokenizer_path} has {tokenizer.num_tokens} pieces, more than model.vocabulary={vocabulary}; "
            f"set that to {tokenizer.num_tokens}, or take the tokenizer of this model"
        )
    dialogues = [data_dir / FOLDER / f"{split}.json" for split in SPLITS]
    for path in dialogues:
        read_dialogues(path)
    questions = mmlu.question_files(data_dir, values["evaluation"]["subjects"])
    for path in questions:
        found = mmlu.read_questions(path)
        if path.parent.name == "dev" and len(found) < values["evaluation"]["shots"]:
            raise BadInput(
                f"{path} has {len(found)} examples, fewer than evaluation.shots={values['evaluation']['shots']}; "
                f"{mmlu.GET_MMLU}"
            )
    if questions:
        tokenizer.answers()
    return [tokenizer_path, *dialogues, *questions]


# --- checkpoint -----------------------------------------------------------------------------------------------------


def _checked_checkpoint(folder: Path, model: dict[str, Any]) -> list[Path]:
    config_path = folder / "config.json"
    _check_config(config_path, _json_object(config_path), model)
    files = _weight_files(folder)
    found = {name: (path, shape) for path in files for name, shape in _tensor_shapes(path).items()}
    for name, wanted in _wanted_shapes(model).items():
        if name not in found:
            raise BadInput(f"{folder} has no weight called {name}; {GET_CHECKPOINT}")
        path, shape = found[name]
        if shape != wanted:
            raise BadInput(f"{path}: {name} has the shape {shape}, and this run needs {wanted}; {GET_CHECKPOINT}")
    index = [folder / INDEX] if len(files) > 1 or (folder / INDEX).is_file() else []
    return [config_path, *index, *files]


def _check_config(path: Path, config: dict[str, Any], model: dict[str, Any]) -> None:
    """What the weights cannot be told by (heads), and what is better said before the run than in it."""
    if config.get("model_type") != "llama":
        raise BadInput(f"{path} is of a model of type {config.get('model_type')!r}, not llama; {GET_CHECKPOINT}")
    heads = config.get("num_attention_heads")
    for name, key, found in (
        ("hidden_size", "width", config.get("hidden_size")),
        ("num_attention_heads", "heads", heads),
        ("num_key_value_heads", "kv_heads", config.get("num_key_value_heads", heads)),
        ("intermediate_size", "ffn", config.get("intermediate_size")),
        ("vocab_size", "vocabulary", config.get("vocab_size")),
        ("tie_word_embeddings", "tied", config.get("tie_word_embeddings", False)),
    ):
        if found != model[key]:
            raise BadInput(
                f"{path} is of a model with {name}={found}, and this run has model.{key}={model[key]}; set it to that, "
                "or model.checkpoint=false to start from random weights"
            )
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers < model["layers"]:
        raise BadInput(f"{path} is of a model with {layers} layers, fewer than model.layers={model['layers']}; lower it")


def _weight_files(folder: Path) -> list[Path]:
    """One file, or the shards that its index names."""
    single, index = folder / "model.safetensors", folder / INDEX
    if single.is_file():
        return [single]
    if not index.is_file():
        raise BadInput(
            f"{folder} has neither model.safetensors nor {INDEX}; pickled weights (.bin) are not read. {GET_CHECKPOINT}"
        )
    shards = _json_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise BadInput(f"{index} has no weight_map; {GET_CHECKPOINT}")
    files = [folder / Path(str(name)).name for name in sorted(set(map(str, shards.values())))]
    for path in files:
        if not path.is_file():
            raise BadInput(f"{path} does not exist, and {index} names it; {GET_CHECKPOINT}")
    return files


def _tensor_shapes(path: Path) -> dict[str, list[int]]:
    """From the header of a safetensors file, whose first eight bytes say how long it is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        raw = file.read(length) if 2 <= length <= size - 8 else b""
    try:
        header = json.loads(raw)
        shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name in shapes), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        raise BadInput(f"{path} is not a safetensors file; {GET_CHECKPOINT}") from None
    if size != 8 + length + end:
        raise BadInput(f"{path} has {size} bytes, and its header speaks of {8 + length + end}; {GET_CHECKPOINT}")
    return shapes


def _wanted_shapes(model: dict[str, Any]) -> dict[str, list[int]]:
    width, ffn, vocabulary = model["width"], model["ffn"], model["vocabulary"]
    narrow = width // model["heads"] * model["kv_heads"]
    layer = {
        "self_attn.q_proj": [width, width], "self_attn.k_proj": [narrow, width], "self_attn.v_proj": [narrow, width],
        "self_attn.o_proj": [width, width], "mlp.gate_proj": [ffn, width], "mlp.up_proj": [ffn, width],
        "mlp.down_proj": [width, ffn], "input_layernorm": [width], "post_attention_layernorm": [width],
    }  # fmt: skip
    ends = {"model.embed_tokens": [vocabulary, width], "model.norm": [width]}
    if not model["tied"]:
        ends["lm_head"] = [vocabulary, width]
    layers = {f"model.layers.{n}.{name}": shape for n in range(model["layers"]) for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in {**ends, **layers}.items()}


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; {GET_CHECKPOINT}") from None
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} cannot be read as JSON ({error}); {GET_CHECKPOINT}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not a JSON object; {GET_CHECKPOINT}")
    return found


def _described(path: Path, data_dir: Path) -> DataFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return DataFile(path.relative_to(data_dir).as_posix(), path.stat().st_size, digest.hexdigest())
