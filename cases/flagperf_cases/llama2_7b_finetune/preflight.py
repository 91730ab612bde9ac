"""check_files: validates values and files before any process of the run starts. Importable without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.llama2_7b_finetune import mmlu, synthetic
from flagperf_cases.llama2_7b_finetune.checkpoint import CHECKPOINT, check_checkpoint, check_tokenizer
from flagperf_cases.llama2_7b_finetune.data import FOLDER, SPLITS, packed_rows, read_dialogues, synthetic_tokenizer
from flagperf_cases.value_checks import check_divisible, check_synthetic_rows

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a block that adapters can be attached to."""


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each of them validated. Raises BadInput for the first problem."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "samsum", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    folder = data_folder(data_dir, f"{CHECKPOINT}/, {FOLDER}/ and {mmlu.FOLDER}/")
    files: list[Path] = []
    if real_data:
        files += _checked_text(folder, values)
    if checkpoint:
        files += check_checkpoint(folder / CHECKPOINT, values["model"])
    return [describe_file(path, folder) for path in files]


# --- values ---------------------------------------------------------------------------------------------------------


def _check_values(values: dict[str, Any]) -> None:
    model = values["model"]
    check_divisible(model, "width", "heads")
    check_divisible(model, "heads", "kv_heads")
    check_synthetic_rows(values["data"])
    if model["width"] // model["heads"] % 2:
        raise BadInput(
            f"model.width / model.heads = {model['width'] // model['heads']} is odd, and rotary positions need pairs; "
            "choose them so that it is even"
        )
    if model["sequence"] > model["positions"]:
        raise BadInput(
            f"model.sequence={model['sequence']} is more than model.positions={model['positions']}; lower it"
        )
    _check_targets(values["lora"]["targets"])
    _check_save_to(model["save_to"])
    if values["data"]["source"] == "synthetic":
        _check_synthetic(values)


def _check_targets(targets: Sequence[Any]) -> None:
    if not targets:
        raise BadInput('lora.targets is empty: nothing would be trained; set it, for example to ["q_proj", "v_proj"]')
    for target in targets:
        if target not in LINEAR_LAYERS:
            raise unknown_name("layer", str(target), LINEAR_LAYERS, "(lora.targets)")


def _check_save_to(folder: str) -> None:
    if folder and not Path(folder).is_absolute():
        raise BadInput(f"model.save_to={folder} is relative, and workers run in a temporary folder; give a full path")
    if folder and Path(folder).exists():
        raise BadInput(f"model.save_to={folder} already exists; name a new folder")
    parent = next(parent for parent in Path(folder).parents if parent.exists()) if folder else None
    if parent is not None and not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise BadInput(f"model.save_to={folder} cannot be created in {parent}; name a folder with write permission")


def _check_synthetic(values: dict[str, Any]) -> None:
    evaluation, num_subjects = values["evaluation"], len(synthetic.SUBJECT_NAMES)
    num_words = synthetic_tokenizer().num_tokens
    if values["model"]["vocabulary"] < num_words:
        raise BadInput(
            f"data.source=synthetic has {num_words} words, more than model.vocabulary={values['model']['vocabulary']}; "
            f"set that to {num_words} or more"
        )
    if evaluation["subjects"] > num_subjects:
        raise BadInput(
            f"data.source=synthetic has {num_subjects} subjects, and evaluation.subjects={evaluation['subjects']}; "
            f"set it to {num_subjects} or less"
        )
    if evaluation["subjects"] and not evaluation["questions"]:
        raise BadInput(
            "data.source=synthetic generates as many questions per subject as evaluation.questions says, and it is 0; "
            "set it, e.g. to 60"
        )


# --- text -----------------------------------------------------------------------------------------------------------


def _checked_text(folder: Path, values: dict[str, Any]) -> list[Path]:
    tokenizer = check_tokenizer(folder / CHECKPOINT, values["model"]["vocabulary"])
    dialogues = [folder / FOLDER / f"{split}.json" for split in SPLITS]
    for path, key in zip(dialogues, ("rows", "eval_rows", "eval_rows"), strict=True):
        found = read_dialogues(path)[: values["data"][key] or None]
        # Only as many dialogues as are certain to fill one row.
        packed_rows(str(path), found[: values["model"]["sequence"]], tokenizer, values["model"]["sequence"])
    questions = mmlu.question_files(folder, values["evaluation"]["subjects"])
    for path in questions:
        _check_questions(path, values["evaluation"]["shots"])
    if questions:
        tokenizer.answers()
    return [folder / CHECKPOINT / "tokenizer.model", *dialogues, *questions]


def _check_questions(path: Path, num_shots: int) -> None:
    found = mmlu.read_questions(path)
    if path.parent.name == "dev" and len(found) < num_shots:
        raise BadInput(f"{path} has {len(found)} examples, fewer than evaluation.shots={num_shots}; {mmlu.GET_MMLU}")
