"""The sentences of a run, GLUE's SST-2 from disk or synthetic ones, and the batches made of them.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.errors import BadInput
from flagperf_cases.data_files import read_lines
from flagperf_cases.distilbert.checkpoint import CHECKPOINT
from flagperf_cases.distilbert.synthetic import synthetic_sentences
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, step_loader

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

HEADER = "sentence\tlabel"
GET_SST2 = "take SST-2.zip of GLUE (https://gluebenchmark.com/tasks) and unpack it in the folder given as --data-dir"


@dataclass(frozen=True)
class Sentences:
    name: str
    tokens: list[list[int]]
    """Token ids of each row, [CLS] and [SEP] included, without padding."""
    labels: list[int]

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for label, tokens in zip(self.labels, self.tokens, strict=True):
            digest.update(f"{label} {tokens}\n".encode())
        return digest.hexdigest()


def load_data(config: Any, data_dir: Path | None) -> tuple[Sentences, Sentences]:
    """The training and the evaluation rows, the same on every rank."""
    data, model = config.data, config.model
    if data.source == "synthetic":
        train = synthetic("train", data.rows, model.vocabulary, model.sequence)
        validation = synthetic("eval", data.eval_rows, model.vocabulary, model.sequence)
    else:
        assert data_dir is not None, "check_files requires --data-dir"
        train = sst2(data_dir, "train", data.rows, model.sequence)
        validation = sst2(data_dir, "dev", data.eval_rows, model.sequence)
    if data.shuffle_labels:
        for sentences in (train, validation):
            random.Random(f"labels of {sentences.name}").shuffle(sentences.labels)
    return train, validation


def synthetic(split: str, num_rows: int, vocabulary: int, sequence: int) -> Sentences:
    return Sentences(f"synthetic {split}", *synthetic_sentences(split, num_rows, vocabulary, sequence))


# --- tensors --------------------------------------------------------------------------------------------------------


def training_loader(sentences: Sentences, sampler: TrainingSampler, sequence: int, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, sentences, sequence), sampler, num_workers)


def _batch(sentences: Sentences, sequence: int, micro: MicroBatch) -> Batch:
    import torch

    pairs = zip(micro.rows, micro.weights, strict=True)
    num_tokens = sum(len(sentences.tokens[row]) * weight for row, weight in pairs)
    return {
        **padded_batch(sentences, micro.rows, sequence),
        "weights": torch.tensor(micro.weights, dtype=torch.float32),
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": len(micro.rows) * sequence - num_tokens,
    }


def padded_batch(sentences: Sentences, rows: Sequence[int], sequence: int) -> dict[str, torch.Tensor]:
    import torch

    input_ids = torch.zeros(len(rows), sequence, dtype=torch.long)
    attention_mask = torch.zeros(len(rows), sequence, dtype=torch.long)
    for index, row in enumerate(rows):
        tokens = sentences.tokens[row]
        input_ids[index, : len(tokens)] = torch.tensor(tokens)
        attention_mask[index, : len(tokens)] = 1
    labels = torch.tensor([sentences.labels[row] for row in rows])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


# --- SST-2 ----------------------------------------------------------------------------------------------------------


def sst2(data_dir: Path, split: str, num_rows: int, sequence: int) -> Sentences:
    """The first `num_rows` rows (0: all), tokenized by BERT's lower-casing WordPiece."""
    # The loader's worker processes never tokenize. The variable prevents a warning about forking in each of them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer.from_file(str(data_dir / CHECKPOINT / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(max_length=sequence)
    rows = read_tsv(data_dir / "SST-2" / f"{split}.tsv")[: num_rows or None]
    tokens = [encoding.ids for encoding in tokenizer.encode_batch([text for text, _ in rows])]
    return Sentences(f"SST-2 {split}", tokens, [label for _, label in rows])


def read_tsv(path: Path) -> list[tuple[str, int]]:
    """GLUE's own format: a header, then sentence and label separated by a tab. Nothing is quoted."""
    lines = read_lines(path, GET_SST2)
    if lines[0] != HEADER:
        raise BadInput(
            f"{path} line 1: expected the header {HEADER!r}, found {lines[0][:60]!r}; "
            f"there is another version of SST-2 with 6,920 rows and no header, which cannot be used; {GET_SST2}"
        )
    if len(lines) == 1:
        raise BadInput(f"{path} has a header and no rows; {GET_SST2}")
    return [_row(path, number, line) for number, line in enumerate(lines[1:], 2)]


def _row(path: Path, number: int, line: str) -> tuple[str, int]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise BadInput(f"{path} line {number}: expected sentence<TAB>label, found {line[:60]!r}; {GET_SST2}")
    sentence, label = columns
    if not sentence.strip():
        raise BadInput(f"{path} line {number}: the sentence is empty; {GET_SST2}")
    if label not in ("0", "1"):
        raise BadInput(f"{path} line {number}: the label must be 0 or 1, found {label[:20]!r}; {GET_SST2}")
    return sentence, int(label)
