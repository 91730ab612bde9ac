"""check_files: validates values and files before any process of the run starts. Importable without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.glm.checkpoint import CHECKPOINT, check_checkpoint
from flagperf_cases.glm.data import TRAIN, VALIDATION, VOCABULARY
from flagperf_cases.glm.record_dataset import (
    GET_RECORD,
    NO_HDF5,
    Record,
    entity_texts,
    evaluation_clozes,
    query_text,
    read_records,
)
from flagperf_cases.glm.samples import NUM_FRAME_TOKENS, make_samples
from flagperf_cases.glm.synthetic import MAX_POSITIONS, WORDS
from flagperf_cases.glm.tokenizer import NUM_ANSWER_TOKENS, SPECIAL, WordPieceTokenizer
from flagperf_cases.tokenizer_files import check_vocabulary, read_words
from flagperf_cases.value_checks import check_divisible, check_synthetic_rows

GET_VOCABULARY = (
    "download vocab.txt of https://huggingface.co/bert-base-uncased into the folder bert-base-uncased of --data-dir"
)


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each of them validated. Raises BadInput for the first problem."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "record", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    folder = data_folder(data_dir, f"ReCoRD/, {Path(VOCABULARY).parent}/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        _refuse_hdf5(folder)
        vocabulary = _checked_vocabulary(folder / VOCABULARY, values["model"]["vocabulary"])
        files += [_checked_records(folder, name, vocabulary, values) for name in (TRAIN, VALIDATION)]
        files.append(vocabulary)
    if checkpoint:
        files += check_checkpoint(folder / CHECKPOINT, values["model"])
    return [describe_file(path, folder) for path in files]


def _check_values(values: dict[str, Any]) -> None:
    model, training = values["model"], values["training"]
    check_divisible(model, "width", "heads")
    check_synthetic_rows(values["data"])
    if training["schedule_steps"] < training["accumulate"]:
        raise BadInput(
            f"training.schedule_steps={training['schedule_steps']} micro-batches are less than one step of "
            f"training.accumulate={training['accumulate']}; raise the first"
        )
    if values["data"]["source"] == "synthetic":
        _check_synthetic(model)


def _check_synthetic(model: dict[str, Any]) -> None:
    num_tokens = len(SPECIAL) + len(WORDS) + NUM_ANSWER_TOKENS
    for key, needed in (("vocabulary", num_tokens), ("sequence", MAX_POSITIONS)):
        if model[key] < needed:
            raise BadInput(f"data.source=synthetic needs model.{key}={needed}, and it is {model[key]}; raise it")


def _refuse_hdf5(folder: Path) -> None:
    """Checked first: a folder with the original benchmark's files has neither the text nor the vocabulary."""
    missing = [folder / name for name in (TRAIN, VALIDATION) if not (folder / name).exists()]
    if missing and any(name.endswith(".hdf5") for _, _, names in os.walk(folder) for name in names):
        raise BadInput(f"{missing[0]} does not exist, and {NO_HDF5}; {GET_RECORD}")


def _checked_records(folder: Path, name: str, vocabulary: Path, values: dict[str, Any]) -> Path:
    path, length = folder / name, values["model"]["sequence"]
    long = [record for record in read_records(path) if _may_be_too_long(record, length)]
    if long:
        make_samples(str(path), evaluation_clozes(long), WordPieceTokenizer.from_file(vocabulary), length)
    return path


def _may_be_too_long(record: Record, length: int) -> bool:
    """A token takes at least one byte, so almost no text has to be tokenized to know that it fits."""
    longest = max(len(text.encode()) for text in entity_texts(record))
    return any(NUM_FRAME_TOKENS + len(query_text(each).encode()) + longest > length for each in record.qas)


def _checked_vocabulary(path: Path, size: int) -> Path:
    words = read_words(path, SPECIAL, GET_VOCABULARY)
    check_vocabulary(path, len(words) + NUM_ANSWER_TOKENS, size, GET_VOCABULARY)
    return path
