"""The sentences: GLUE's SST-2 from disk, or made up.

Importable without torch: `check_files` is called before any process of the run starts.
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

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.distilbert.checkpoint import CHECKPOINT, check_checkpoint, check_vocabulary
from flagperf_cases.files import data_folder, described, read_lines
from flagperf_cases.rows import Batch, MicroBatch, TrainingRows, step_loader
from flagperf_cases.values import check_made_up_rows, check_shared

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

HEADER = "sentence\tlabel"


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


def load_sentences(config: Any, data_dir: Path | None) -> tuple[Sentences, Sentences]:
    """The rows to train on and the rows to evaluate, alike on every rank."""
    data, model = config.data, config.model
    if data.source == "synthetic":
        train = made_up("train", data.rows, model.vocabulary, model.sequence)
        validation = made_up("eval", data.eval_rows, model.vocabulary, model.sequence)
    else:
        assert data_dir is not None, "check_files has asked for --data-dir"
        train = sst2(data_dir, "train", data.rows, model.sequence)
        validation = sst2(data_dir, "dev", data.eval_rows, model.sequence)
    if data.shuffle_labels:
        for sentences in (train, validation):
            random.Random(f"labels of {sentences.name}").shuffle(sentences.labels)
    return train, validation


# --- tensors --------------------------------------------------------------------------------------------------------


def training_loader(sentences: Sentences, rows: TrainingRows, sequence: int, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, sentences, sequence), rows, num_workers)


def _batch(sentences: Sentences, sequence: int, micro: MicroBatch) -> Batch:
    import torch

    pairs = zip(micro.rows, micro.weights, strict=True)
    num_tokens = sum(len(sentences.tokens[row]) * weight for row, weight in pairs)
    return {
        **padded(sentences, micro.rows, sequence),
        "weights": torch.tensor(micro.weights, dtype=torch.float32),
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": len(micro.rows) * sequence - num_tokens,
    }


def padded(sentences: Sentences, rows: Sequence[int], sequence: int) -> dict[str, torch.Tensor]:
    import torch

    input_ids = torch.zeros(len(rows), sequence, dtype=torch.long)
    attention_mask = torch.zeros(len(rows), sequence, dtype=torch.long)
    for index, row in enumerate(rows):
        tokens = sentences.tokens[row]
        input_ids[index, : len(tokens)] = torch.tensor(tokens)
        attention_mask[index, : len(tokens)] = 1
    labels = torch.tensor([sentences.labels[row] for row in rows])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


# --- made up --------------------------------------------------------------------------------------------------------

CLS, SEP, NOT = 1, 2, 3
"""Special words of the made-up language; 0 is padding, as in BERT's vocabulary."""


def made_up(split: str, num_rows: int, vocabulary: int, sequence: int) -> Sentences:
    """Sentences in which the majority of three opinions decides, and "not" turns the opinion after it round.

    A quarter of the words is bad, a quarter good, the others mean nothing. Both labels are equally frequent, and their
    sentences equally long.
    """
    rng = random.Random(f"sentences {split}")
    labels = [row % 2 for row in range(num_rows)]
    return Sentences(f"synthetic {split}", [_sentence(rng, label, vocabulary, sequence) for label in labels], labels)


def _sentence(rng: random.Random, label: int, vocabulary: int, sequence: int) -> list[int]:
    bad = NOT + 1
    quarter = (vocabulary - bad) // 4
    phrases = []
    for opinion in (label, label, rng.randrange(2)):
        negated = rng.random() < 0.03
        word = bad + quarter * (opinion ^ negated) + rng.randrange(quarter)
        phrases.append([NOT, word] if negated else [word])
    num_words = rng.randint(6, min(sequence, 64) - 2)
    while sum(map(len, phrases)) < num_words:
        phrases.append([rng.randrange(bad + 2 * quarter, vocabulary)])
    rng.shuffle(phrases)
    return [CLS, *(word for phrase in phrases for word in phrase), SEP]


# --- SST-2 ----------------------------------------------------------------------------------------------------------


def sst2(data_dir: Path, split: str, num_rows: int, sequence: int) -> Sentences:
    """The first `num_rows` rows (0: all), as BERT's lower-casing WordPiece cuts them."""
    # Worker processes of the loader never tokenise; set, the variable saves each of them a warning about being forked.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer.from_file(str(data_dir / CHECKPOINT / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(max_length=sequence)
    rows = read_tsv(data_dir / "SST-2" / f"{split}.tsv")[: num_rows or None]
    tokens = [encoding.ids for encoding in tokenizer.encode_batch([text for text, _ in rows])]
    return Sentences(f"SST-2 {split}", tokens, [label for _, label in rows])


def read_tsv(path: Path) -> list[tuple[str, int]]:
    """GLUE's own form: a header, then sentence and label separated by a tab. Nothing is quoted."""
    lines = read_lines(path, GET_SST2)
    if lines[0] != HEADER:
        raise BadInput(
            f"{path} line 1: expected the header {HEADER!r}, found {lines[0][:60]!r}; "
            f"a look-alike with 6,920 rows and no header is in circulation. {GET_SST2}"
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
        raise BadInput(f"{path} line {number}: the label must be 0 or 1, found {label!r}; {GET_SST2}")
    return sentence, int(label)


GET_SST2 = "take SST-2.zip of GLUE (https://gluebenchmark.com/tasks) and unpack it in the folder given as --data-dir"


# --- before the run -------------------------------------------------------------------------------------------------


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each looked through. Raises BadInput for the first fault."""
    check_shared(values["model"], "width", "heads")
    check_made_up_rows(values["data"])
    real_data, model = values["data"]["source"] == "sst2", values["model"]
    if not real_data and not model["checkpoint"]:
        return []
    folder = data_folder(data_dir, f"SST-2/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        files += [_checked_tsv(folder / "SST-2" / name) for name in ("train.tsv", "dev.tsv")]
        files.append(check_vocabulary(folder / CHECKPOINT / "vocab.txt", model))
    if model["checkpoint"]:
        files += check_checkpoint(folder / CHECKPOINT, model)
    return [described(path, folder) for path in files]


def _checked_tsv(path: Path) -> Path:
    read_tsv(path)
    return path
