"""What llama2_70b learns from: one stream of tokens, cut into samples of sequence + 1, in an order that depends on the
seed alone. Light: check_files is called before any process starts."""

from __future__ import annotations

import hashlib
import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flagperf.api import DataFile
from flagperf.errors import BadInput, Unsupported
from flagperf_cases.decoder.shape import check_layout, layout_of, shape_of
from flagperf_cases.files import data_folder, described, existing, read_lines
from flagperf_cases.llama2_70b.indexed import TokenStream, read_index

TOKENIZER = Path("tokenizer") / "tokenizer.model"
TEXTS = "text"
LOOKED_THROUGH = 1 << 20
"""Tokens whose numbers are compared with the vocabulary before a run; the rest when they are used."""
NUM_HASHED = 64


class Stream(Protocol):
    def __len__(self) -> int: ...

    def part(self, begin: int, end: int) -> list[int]: ...


@dataclass(frozen=True)
class Samples:
    name: str
    stream: Stream
    sequence: int
    vocabulary: int
    sha256: str = ""
    """Tells data apart at little cost, see `_digest`. The files' own hashes are recorded with the job."""

    def __len__(self) -> int:
        return max(0, (len(self.stream) - 1) // self.sequence)

    def __getitem__(self, row: int) -> list[int]:
        """Tokens `sequence` + 1: the last one is only a label."""
        begin = row * self.sequence
        tokens = self.stream.part(begin, begin + self.sequence + 1)
        check_tokens(self.name, tokens, self.vocabulary)
        return tokens


def load_samples(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, model = values["data"]["source"], values["model"]
    stream = _open(values, data_dir)
    samples = Samples(source, stream, model["sequence"], model["vocabulary"])
    if not len(samples):
        raise BadInput(
            f"data.source={source} has {len(stream)} tokens, too few for one sample of {model['sequence']} + 1; "
            "give more data or a smaller model.sequence"
        )
    return replace(samples, sha256=_digest(samples))


def _digest(samples: Samples) -> str:
    """Of the number of samples, which decides their order, and of some from the first to the last."""
    last = len(samples) - 1
    rows = sorted({last * part // (NUM_HASHED - 1) for part in range(NUM_HASHED)})
    return hashlib.sha256(repr((len(samples), [samples[row] for row in rows])).encode()).hexdigest()


def check_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
        wrong = max(tokens) if max(tokens) >= vocabulary else min(tokens)
        raise BadInput(f"{name}: token {wrong} is not below model.vocabulary={vocabulary}; use the tokenizer it is for")


def _open(values: dict[str, Any], data_dir: Path | None) -> Stream:
    source = values["data"]["source"]
    if source == "made_up":
        model, data = values["model"], values["data"]
        return MadeUpStream(data["tokens"], model["vocabulary"], data["noise"])
    folder = data_folder(data_dir, "tokens")
    if source == "indexed":
        return TokenStream(read_index(indexed_prefix(folder, values["data"]["prefix"])))
    return TextStream(text_files(folder), folder / TOKENIZER)


class MadeUpStream:
    """Each token is followed by a fixed other one, but for a share of noise: learnable, and the same everywhere.
    With noise 1 there is nothing to learn."""

    def __init__(self, num_tokens: int, vocabulary: int, noise: float) -> None:
        rng = random.Random(f"llama2_70b {vocabulary}")
        followers = list(range(vocabulary))
        rng.shuffle(followers)
        self._tokens = [0]
        for _ in range(num_tokens - 1):
            is_noise = rng.random() < noise
            self._tokens.append(rng.randrange(vocabulary) if is_noise else followers[self._tokens[-1]])

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        return self._tokens[begin:end]


class TextStream:
    """Text files by SentencePiece; every document, which is a file, begins with its begin token and ends with the
    end token."""

    def __init__(self, files: Sequence[Path], tokenizer: Path) -> None:
        pieces = _tokenizer(tokenizer)
        self._tokens = array("i")
        for path in files:
            text = "\n".join(read_lines(path, "save it as UTF-8"))
            self._tokens.extend([pieces.bos_id(), *pieces.encode(text), pieces.eos_id()])

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        return self._tokens[begin:end].tolist()


def indexed_prefix(folder: Path, prefix: str) -> Path:
    path = Path(prefix)
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise BadInput(
            f"data.prefix={prefix!r} names no files below --data-dir; give their name without .bin and .idx, for "
            "example llama_00_text_document, and their folder as --data-dir"
        )
    return folder / path


def text_files(folder: Path) -> list[Path]:
    found = sorted((folder / TEXTS).glob("*.txt"))
    if not found:
        raise BadInput(f"{folder / TEXTS} has no .txt files; put the text there, or set data.source=indexed")
    return found


def _tokenizer(path: Path) -> Any:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise Unsupported("data.source=text needs the package sentencepiece: pip install sentencepiece") from None
    try:
        return SentencePieceProcessor(model_file=str(existing(path, "it is Llama 2's tokenizer.model")))
    except (RuntimeError, OSError) as error:
        raise BadInput(f"{path} is not a SentencePiece model ({str(error).splitlines()[0]})") from None


# --- before a run ---------------------------------------------------------------------------------------------------


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The layout first, which costs nothing; then the files that a run with these values reads."""
    shape = shape_of(values["model"])
    check_layout(shape, layout_of(values["parallel"]), values["training"]["accumulate"])
    if values["data"]["source"] == "made_up":
        if values["data"]["tokens"] <= shape.sequence:
            raise BadInput(f"data.tokens must be above model.sequence={shape.sequence} where the data is made up")
        return []
    samples = load_samples(values, data_dir)
    first = samples.stream.part(0, min(len(samples.stream), LOOKED_THROUGH))
    check_tokens(values["data"]["source"], first, shape.vocabulary)
    folder = data_folder(data_dir, "tokens")
    return [described(path, folder) for path in _files(values["data"], folder)]


def _files(data: dict[str, Any], folder: Path) -> list[Path]:
    if data["source"] == "text":
        return [*text_files(folder), folder / TOKENIZER]
    return [folder / (data["prefix"] + suffix) for suffix in (".bin", ".idx")]


# --- which samples --------------------------------------------------------------------------------------------------


def global_batch_rows(num_rows: int, seed: int, step: int, size: int) -> list[int]:
    """The samples of one optimizer step, whatever the layout is. After the last sample a new order begins."""
    rows = []
    for number in range(step * size, (step + 1) * size):
        rows.append(_order(num_rows, seed, number // num_rows)[number % num_rows])
    return rows


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(num_rows: int, seed: int, epoch: int) -> list[int]:
    key = (num_rows, seed, epoch)
    if key not in _orders:
        _orders.clear()
        order = list(range(num_rows))
        random.Random(f"{seed} {epoch}").shuffle(order)
        _orders[key] = order
    return _orders[key]


def rate_factor(consumed: int, *, total: int, warmup: int, lowest: float) -> float:
    """Of the learning rate after so many samples: up in a line, then down by a cosine to the share `lowest`."""
    if consumed < warmup:
        return consumed / warmup
    progress = min(1.0, (consumed - warmup) / max(1, total - warmup))
    return lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * progress))
