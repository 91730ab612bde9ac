"""LAMBADA as aquila_33b reads it, and batches of samples of like length. Light: check_files is called before any
process starts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.checkpoint import check_checkpoint
from flagperf_cases.aquila_33b.tokens import Tokenizer, open_tokenizer, tokenizer_files
from flagperf_cases.decoder.shape import check_layout, layout_of, shape_of
from flagperf_cases.files import data_folder, described, read_lines

TEXTS = ("lambada_test_bak.jsonl", "lambada_test.jsonl")
MAX_CHARACTERS = 4096
ADVICE = "take lambada_test.jsonl, LAMBADA's test set in OpenAI's form: a JSON object with the key `text` on each line"


@dataclass(frozen=True)
class Sample:
    tokens: tuple[int, ...]
    """Begin, text, end. All but the first are scored."""
    last_word: int
    """Tokens of the last word, right before the end token."""

    @property
    def length(self) -> int:
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Samples:
    name: str
    rows: tuple[Sample, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(repr([row.tokens for row in self.rows]).encode()).hexdigest()


def load_samples(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, model = values["data"]["source"], values["model"]
    if source == "made_up":
        return Samples(source, _made_up(values["data"]["samples"], model["vocabulary"], model["sequence"]))
    folder = data_folder(data_dir, "weights, tokenizer and texts")
    path = texts_file(folder)
    tokenizer = open_tokenizer(folder / "tokenizer")
    texts = read_texts(path)[: values["data"]["samples"] or None]
    rows = tuple(sample_of(text, tokenizer) for text in texts)
    for number, row in enumerate(rows, 1):
        _check_row(f"{path} line {number}", row, model)
    return Samples(path.name, rows)


def texts_file(folder: Path) -> Path:
    for name in TEXTS:
        if (folder / "data" / name).is_file():
            return folder / "data" / name
    raise BadInput(f"{folder / 'data'} has neither {TEXTS[0]} nor {TEXTS[1]}; {ADVICE}")


def read_texts(path: Path) -> list[str]:
    return [_text(path, number, line) for number, line in enumerate(read_lines(path, ADVICE), 1)]


def _text(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} line {number} is not a JSON object with the key `text`; {ADVICE}") from None
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{path} line {number} has no text; {ADVICE}")
    return text[:MAX_CHARACTERS]


def sample_of(text: str, tokenizer: Tokenizer) -> Sample:
    """The last word is what the tokens of the text have after those that it shares with the text before that word."""
    ids = list(tokenizer.encode(text))
    *before, _ = text.rstrip().rsplit(None, 1)
    context = list(tokenizer.encode(before[0])) if before else []
    shared = next((at for at, (one, other) in enumerate(zip(ids, context, strict=False)) if one != other), len(context))
    return Sample((tokenizer.begin, *ids, tokenizer.end), len(ids) - min(shared, len(ids)))


def _check_row(where: str, row: Sample, model: dict[str, Any]) -> None:
    if row.length > model["sequence"]:
        raise BadInput(f"{where} has {row.length} tokens, above model.sequence={model['sequence']}; set it higher")
    if not 0 <= min(row.tokens) <= max(row.tokens) < model["vocabulary"]:
        raise BadInput(
            f"{where}: token {max(row.tokens)} is not below model.vocabulary={model['vocabulary']}; "
            "use the tokenizer that the model is for"
        )


def _made_up(count: int, vocabulary: int, sequence: int) -> tuple[Sample, ...]:
    rng = random.Random("aquila_33b")
    lengths = [rng.randint(max(2, sequence // 4), sequence) for _ in range(count)]
    return tuple(Sample(tuple(rng.randrange(vocabulary) for _ in range(length + 1)), 1) for length in lengths)


# --- batches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    rows: tuple[Sample, ...]
    length: int
    """Positions of each row as it is computed, padding included."""

    @property
    def num_real(self) -> int:
        return sum(row.length for row in self.rows)

    @property
    def num_padding(self) -> int:
        return len(self.rows) * self.length - self.num_real


def make_batches(rows: Sequence[Sample], batch_size: int, *, multiple: int, pad_to: int) -> list[Batch]:
    """Samples of like length together, the longest first: what does not fit into memory shows at once. `pad_to`
    makes all of them as long, as the original benchmark does."""
    ordered = sorted(rows, key=lambda row: -row.length)
    groups = [tuple(ordered[begin : begin + batch_size]) for begin in range(0, len(ordered), batch_size)]
    return [Batch(group, pad_to or -(-group[0].length // multiple) * multiple) for group in groups]


def attended_length(batches: Sequence[Batch]) -> int:
    """The mean length that a computed position's row has, for the FLOPs of attention."""
    positions = sum(len(batch.rows) * batch.length for batch in batches)
    return round(sum(len(batch.rows) * batch.length**2 for batch in batches) / positions)


# --- before a run ---------------------------------------------------------------------------------------------------


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The layout first, which costs nothing; then the files that a run with these values reads."""
    check_spread(values)
    shape = shape_of(values["model"])
    source, checkpoint = values["data"]["source"], values["model"]["checkpoint"]
    if source == "made_up" and not values["data"]["samples"]:
        raise BadInput("data.samples must be above 0 where the data is made up")
    files: list[Path] = []
    if source != "made_up":
        folder = data_folder(data_dir, "weights, tokenizer and texts")
        load_samples(values, folder)
        files += [texts_file(folder), *tokenizer_files(folder / "tokenizer")]
    if checkpoint != "none":
        files += check_checkpoint(data_folder(data_dir, "weights, tokenizer and texts"), checkpoint, shape)
    return [described(path, data_folder(data_dir, "files")) for path in files]


def check_spread(values: dict[str, Any]) -> None:
    """Raises BadInput where model and batches cannot be spread as asked. Looks at no file."""
    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    if layout.pp != 1 or layout.dp != 1:
        raise BadInput(
            f"aquila_33b is spread by tensor parallelism alone; TP{layout.tp}PP{layout.pp}DP{layout.dp} was asked for: "
            f"use --parallel TP{layout.world_size}PP1DP1"
        )
    check_layout(shape, layout, 1)
    _check_padding(values, layout.tp)


def _check_padding(values: dict[str, Any], tp: int) -> None:
    inference, sequence = values["inference"], values["model"]["sequence"]
    for key in ("multiple", "pad_to"):
        if inference[key] % tp:
            raise BadInput(
                f"parallel.tp={tp} does not divide inference.{key}={inference[key]}; choose one that it does"
            )
    if inference["pad_to"] and inference["pad_to"] < sequence:
        raise BadInput(f"inference.pad_to={inference['pad_to']} is below model.sequence={sequence}; set it as high")
