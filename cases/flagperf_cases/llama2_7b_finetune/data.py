"""SAMSum's dialogues and summaries, from disk or synthetic, packed into rows of one length.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.data_files import read_json
from flagperf_cases.llama2_7b_finetune import synthetic
from flagperf_cases.llama2_7b_finetune.checkpoint import CHECKPOINT
from flagperf_cases.llama2_7b_finetune.mmlu import Subject, read_subjects
from flagperf_cases.llama2_7b_finetune.tokenizer import SentencePieceTokenizer, Tokenizer, WordTokenizer
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, step_loader

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

FOLDER = "samsum_dataset"
SPLITS = ("train", "val", "test")
IGNORED = -100
"""The label that torch's cross entropy ignores."""

GET_SAMSUM = f"unpack SAMSum's corpus.7z (train.json, val.json, test.json) into {FOLDER} of --data-dir"

Dialogue = dict[str, str]
"""With `dialogue` and `summary`."""


@dataclass(frozen=True)
class Rows:
    """Every row is full: the remainder at the end of the text is dropped, as the original does."""

    name: str
    tokens: array[int]
    sequence: int

    def __len__(self) -> int:
        return len(self.tokens) // self.sequence

    def __getitem__(self, row: int) -> array[int]:
        return self.tokens[row * self.sequence : (row + 1) * self.sequence]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.tokens.tobytes()).hexdigest()


@dataclass(frozen=True)
class Data:
    tokenizer: Tokenizer
    train: Rows
    validation: Rows
    test: Rows
    subjects: list[Subject]


def load_data(config: Any, data_dir: Path | None) -> Data:
    """The same on every rank."""
    if config.data.source == "synthetic":
        tokenizer, splits, subjects = _synthetic_texts(config)
    else:
        assert data_dir is not None, "check_files requires --data-dir"
        tokenizer, splits, subjects = _read_texts(data_dir, config)
    train, validation, test = (
        packed_rows(f"{config.data.source} {name}", dialogues, tokenizer, config.model.sequence)
        for name, dialogues in zip(SPLITS, splits, strict=True)
    )
    return Data(tokenizer, train, validation, test, subjects)


Texts = tuple[Tokenizer, list[list[Dialogue]], list[Subject]]
"""The tokenizer, the dialogues by split, and the subjects of MMLU."""


def _synthetic_texts(config: Any) -> Texts:
    data, evaluation = config.data, config.evaluation
    sizes = zip(SPLITS, (data.rows, data.eval_rows, data.eval_rows), strict=True)
    splits = [synthetic.dialogues(split, size, misleading=data.misleading) for split, size in sizes]
    return synthetic_tokenizer(), splits, synthetic.subjects(evaluation.subjects, evaluation.questions)


def _read_texts(data_dir: Path, config: Any) -> Texts:
    data, evaluation = config.data, config.evaluation
    sizes = zip(SPLITS, (data.rows, data.eval_rows, data.eval_rows), strict=True)
    splits = [read_dialogues(data_dir / FOLDER / f"{split}.json")[: size or None] for split, size in sizes]
    subjects = read_subjects(data_dir, evaluation.subjects, evaluation.questions)
    return SentencePieceTokenizer(data_dir / CHECKPOINT / "tokenizer.model"), splits, subjects


def training_text(dialogue: Dialogue) -> str:
    return f"Summarize this dialog:\n{dialogue['dialogue']}\n---\nSummary:\n{dialogue['summary']}"


def synthetic_tokenizer() -> WordTokenizer:
    return WordTokenizer([training_text({"dialogue": "", "summary": ""}), *synthetic.all_words()])


def packed_rows(name: str, dialogues: Iterable[Dialogue], tokenizer: Tokenizer, sequence: int) -> Rows:
    """All texts concatenated in the order of the file, each from BOS to EOS, cut into rows."""
    tokens = array("i")
    for dialogue in dialogues:
        tokens.extend((tokenizer.bos, *tokenizer.encode(training_text(dialogue)), tokenizer.eos))
    rows = Rows(name, tokens, sequence)
    if not len(rows):
        raise BadInput(
            f"{name} has {len(tokens)} tokens, fewer than one row of model.sequence={sequence}; take more dialogues "
            "(data.rows, data.eval_rows) or a shorter sequence"
        )
    return rows


def read_dialogues(path: Path) -> list[Dialogue]:
    found = read_json(path, GET_SAMSUM)
    if not isinstance(found, list) or not found:
        raise BadInput(f"{path} has to be an array of dialogues, and not an empty one; {GET_SAMSUM}")
    return [_dialogue(path, number, entry) for number, entry in enumerate(found, 1)]


def _dialogue(path: Path, number: int, entry: Any) -> Dialogue:
    if not isinstance(entry, dict):
        raise BadInput(f"{path} entry {number} is not an object with `dialogue` and `summary`; {GET_SAMSUM}")
    for key in ("dialogue", "summary"):
        if not isinstance(entry.get(key), str):
            raise BadInput(f"{path} entry {number} has no text called `{key}`; {GET_SAMSUM}")
    return {"dialogue": entry["dialogue"], "summary": entry["summary"]}


# --- tensors --------------------------------------------------------------------------------------------------------


def training_loader(rows: Rows, sampler: TrainingSampler, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, rows), sampler, num_workers)


def _batch(rows: Rows, micro: MicroBatch) -> Batch:
    input_ids = stack_rows(rows, micro.rows)
    labels = input_ids.clone()
    for index, weight in enumerate(micro.weights):
        if not weight:
            labels[index] = IGNORED
    num_tokens = micro.real_rows * rows.sequence
    return {
        "input_ids": input_ids,
        "labels": labels,
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": input_ids.numel() - num_tokens,
    }


def stack_rows(rows: Rows, numbers: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.stack([torch.tensor(rows[number], dtype=torch.long) for number in numbers])
