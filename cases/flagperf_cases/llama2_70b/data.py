"""One stream of tokens, from disk or synthetic, cut into samples of sequence + 1, in an order that the seed decides.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.data_files import data_folder, read_lines
from flagperf_cases.llama2_70b.indexed_dataset import TokenStream, read_index
from flagperf_cases.llama2_70b.order import Order, ShuffledSamples, Stream, megatron_order
from flagperf_cases.llama2_70b.synthetic import SyntheticStream
from flagperf_cases.tokenizer_files import check_vocabulary, open_sentencepiece

TOKENIZER = Path("tokenizer") / "tokenizer.model"
TEXTS = "text"
NUM_HASHED_SAMPLES = 64


@dataclass(frozen=True)
class Samples:
    name: str
    stream: Stream
    order: Order
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

    def global_batch(self, step: int, size: int) -> list[int]:
        """The samples of an optimizer step, the same in every layout."""
        return [self.order[place] for place in range(step * size, (step + 1) * size)]


def load_data(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, sequence = values["data"]["source"], values["model"]["sequence"]
    stream, seed = _open(values, data_dir), values["training"]["seed"]
    if len(stream) <= sequence:
        raise BadInput(
            f"data.source={source} has {len(stream)} tokens, too few for one sample of {sequence} + 1; "
            "give more data or a smaller model.sequence"
        )
    order: Order = ShuffledSamples((len(stream) - 1) // sequence, seed)
    if values["data"]["order"] == "megatron":
        stream, order = megatron_order(stream, sequence, _samples_of_run(values), seed)
    samples = Samples(source, stream, order, sequence, values["model"]["vocabulary"])
    return replace(samples, sha256=_digest(samples, values["data"]["order"]))


def _samples_of_run(values: dict[str, Any]) -> int:
    """Those that the run is made for, or as many as its steps take if these are more: it has at least one."""
    training = values["training"]
    global_batch = training["batch_size"] * training["accumulate"] * max(1, values["parallel"]["dp"])
    return int(max(training["max_samples"], max(1, training["max_steps"]) * global_batch))


def _digest(samples: Samples, order: str) -> str:
    """Hashes the number of samples, which decides their order, and some samples from the first to the last."""
    last = len(samples) - 1
    rows = sorted({last * part // (NUM_HASHED_SAMPLES - 1) for part in range(NUM_HASHED_SAMPLES)})
    content = (len(samples), [samples[row] for row in rows], *([order] if order != "samples" else []))
    return hashlib.sha256(repr(content).encode()).hexdigest()


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
    return TextStream(text_files(folder), folder / TOKENIZER, values["model"]["vocabulary"])


class TextStream:
    """Text files, tokenized by SentencePiece. A file is a document, from BOS to EOS."""

    def __init__(self, files: Sequence[Path], tokenizer: Path, vocabulary: int) -> None:
        pieces = open_sentencepiece(tokenizer, "it is Llama 2's tokenizer.model")
        check_vocabulary(tokenizer, pieces.vocab_size(), vocabulary, "take Llama 2's tokenizer.model")
        self._tokens = array("i")
        self.lengths: list[int] = []
        for path in files:
            text = "\n".join(read_lines(path, "save it as UTF-8"))
            tokens = [pieces.bos_id(), *pieces.encode(text), pieces.eos_id()]
            self.lengths.append(len(tokens))
            self._tokens.extend(tokens)

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
