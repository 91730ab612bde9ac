"""LAMBADA's samples from disk or synthetic ones, and batches of samples of similar length.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.synthetic import synthetic_tokens
from flagperf_cases.aquila_33b.tokenizer import Tokenizer, open_tokenizer
from flagperf_cases.data_files import data_folder, is_there, parse_json, read_lines

TEXTS = ("lambada_test_bak.jsonl", "lambada_test.jsonl")
MAX_CHARACTERS = 4096
ADVICE = (
    "take lambada_test.jsonl, LAMBADA's test set in OpenAI's format: a JSON object with the key `text` on each line"
)


@dataclass(frozen=True)
class Sample:
    tokens: tuple[int, ...]
    """Begin token, text, end token. All but the first are scored."""
    last_word: int
    """Number of tokens of the last word, which is right before the end token."""

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


def load_data(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, model = values["data"]["source"], values["model"]
    if source == "made_up":
        made = synthetic_tokens(values["data"]["samples"], model["vocabulary"], model["sequence"])
        return Samples(source, tuple(Sample(tokens, last_word=1) for tokens in made))
    folder = data_folder(data_dir, "weights, tokenizer and texts")
    path = texts_file(folder)
    tokenizer = open_tokenizer(folder / "tokenizer", model["vocabulary"])
    texts = read_texts(path)[: values["data"]["samples"] or None]
    rows = tuple(make_sample(text, tokenizer) for text in texts)
    for number, row in enumerate(rows, 1):
        _check_row(f"{path} line {number}", row, model)
    return Samples(path.name, rows)


def texts_file(folder: Path) -> Path:
    for name in TEXTS:
        if is_there(folder / "data" / name):
            return folder / "data" / name
    raise BadInput(f"{folder / 'data'} has neither {TEXTS[0]} nor {TEXTS[1]}; {ADVICE}")


def read_texts(path: Path) -> list[str]:
    return [_text(path, number, line) for number, line in enumerate(read_lines(path, ADVICE), 1)]


def _text(path: Path, number: int, line: str) -> str:
    record = parse_json(line, f"{path} line {number}", ADVICE)
    if not isinstance(record, dict) or "text" not in record:
        raise BadInput(f"{path} line {number} is not a JSON object with the key `text`; {ADVICE}")
    text = record["text"]
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{path} line {number} has no text; {ADVICE}")
    return text[:MAX_CHARACTERS]


def make_sample(text: str, tokenizer: Tokenizer) -> Sample:
    """The last word's tokens are those after the common prefix of the whole text and the text without that word."""
    ids = list(tokenizer.encode(text))
    *before, _ = text.rstrip().rsplit(None, 1)
    context = list(tokenizer.encode(before[0])) if before else []
    shared = next((at for at, (one, other) in enumerate(zip(ids, context, strict=False)) if one != other), len(context))
    return Sample((tokenizer.begin, *ids, tokenizer.end), len(ids) - min(shared, len(ids)))


def _check_row(where: str, row: Sample, model: dict[str, Any]) -> None:
    if row.length > model["sequence"]:
        raise BadInput(f"{where} has {row.length} tokens, above model.sequence={model['sequence']}; raise it")
    if not 0 <= min(row.tokens) <= max(row.tokens) < model["vocabulary"]:
        raise BadInput(
            f"{where}: token {max(row.tokens)} is not below model.vocabulary={model['vocabulary']}; "
            "use the tokenizer that the model is for"
        )


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
    """Batches of samples of similar length, the longest first, so that running out of memory shows at once. A `pad_to`
    above 0 pads every sample to it, as the original benchmark does."""
    ordered = sorted(rows, key=lambda row: -row.length)
    groups = [tuple(ordered[begin : begin + batch_size]) for begin in range(0, len(ordered), batch_size)]
    return [Batch(group, pad_to or -(-group[0].length // multiple) * multiple) for group in groups]


def attended_length(batches: Sequence[Batch]) -> int:
    """The mean row length over all computed positions, for the FLOPs of attention."""
    positions = sum(len(batch.rows) * batch.length for batch in batches)
    return round(sum(len(batch.rows) * batch.length**2 for batch in batches) / positions)
