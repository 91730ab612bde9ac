"""One stream of tokens, from disk or synthetic, cut into samples of sequence + 1 in an order that depends on the seed.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flagperf.errors import BadInput, Unsupported
from flagperf_cases.data_files import data_folder, read_lines, require_file
from flagperf_cases.llama2_70b.indexed_dataset import TokenStream, read_index
from flagperf_cases.llama2_70b.synthetic import SyntheticStream

TOKENIZER = Path("tokenizer") / "tokenizer.model"
TEXTS = "text"
NUM_HASHED_SAMPLES = 64


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
    """Identifies the data at little cost, see `_digest`. The sha256 of the files are recorded with the job."""

    def __len__(self) -> int:
        return max(0, (len(self.stream) - 1) // self.sequence)

    def __getitem__(self, row: int) -> list[int]:
        """`sequence` + 1 tokens; the last one is only a label."""
        begin = row * self.sequence
        tokens = self.stream.part(begin, begin + self.sequence + 1)
        check_tokens(self.name, tokens, self.vocabulary)
        return tokens


def load_data(values: dict[str, Any], data_dir: Path | None) -> Samples:
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
    """Hashes the number of samples, which decides their order, and some samples from the first to the last."""
    last = len(samples) - 1
    rows = sorted({last * part // (NUM_HASHED_SAMPLES - 1) for part in range(NUM_HASHED_SAMPLES)})
    return hashlib.sha256(repr((len(samples), [samples[row] for row in rows])).encode()).hexdigest()


def check_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
        wrong = max(tokens) if max(tokens) >= vocabulary else min(tokens)
        raise BadInput(
            f"{name}: token {wrong} is not below model.vocabulary={vocabulary}; use the model's own tokenizer"
        )


def _open(values: dict[str, Any], data_dir: Path | None) -> Stream:
    source = values["data"]["source"]
    if source == "made_up":
        model, data = values["model"], values["data"]
        return SyntheticStream(data["tokens"], model["vocabulary"], data["noise"])
    folder = data_folder(data_dir, "tokens")
    if source == "indexed":
        return TokenStream(read_index(indexed_prefix(folder, values["data"]["prefix"])))
    return TextStream(text_files(folder), folder / TOKENIZER)


class TextStream:
    """Text files, tokenized by SentencePiece. A file is a document, from BOS to EOS."""

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
        return SentencePieceProcessor(model_file=str(require_file(path, "it is Llama 2's tokenizer.model")))
    except (RuntimeError, OSError) as error:
        raise BadInput(f"{path} is not a SentencePiece model ({str(error).splitlines()[0]})") from None


# --- order of the samples -------------------------------------------------------------------------------------------


def global_batch_rows(num_rows: int, seed: int, step: int, size: int) -> list[int]:
    """The samples of one optimizer step, the same in every layout. After the last sample comes a new shuffle."""
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
