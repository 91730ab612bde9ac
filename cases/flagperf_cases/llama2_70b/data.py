"""Read and check what Llama 2 is trained on: one stream of tokens, cut into samples of sequence + 1, in an order that
the seed decides.

In this order: check_files, the samples of a run, their order. The streams are in streams.py. Importable without torch.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flagperf.api import DataFile
from flagperf.errors import BadInput, Unsupported
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.decoder.layout import check_layout, layout_of, shape_of
from flagperf_cases.llama2_70b.streams import (
    TOKENIZER,
    Stream,
    SyntheticStream,
    TextStream,
    TokenStream,
    read_index,
    text_files,
)

NUM_CHECKED_TOKENS = 1 << 20
"""Tokens that are compared with the vocabulary before a run; the others are compared when they are used."""


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """Return the files that a run with these values reads, each of them validated. Raise BadInput for the first
    problem."""
    shape = shape_of(values["model"])
    check_layout(shape, layout_of(values["parallel"]), values["training"]["accumulate"])
    if values["data"]["source"] == "made_up":
        if values["data"]["tokens"] <= shape.sequence:
            raise BadInput(
                f"data.source=made_up needs more tokens than model.sequence={shape.sequence}, and data.tokens is "
                f"{values['data']['tokens']}; raise it"
            )
        return []
    samples = load_data(values, data_dir)
    first = samples.stream.part(0, min(len(samples.stream), NUM_CHECKED_TOKENS))
    check_tokens(values["data"]["source"], first, shape.vocabulary)
    folder = data_folder(data_dir, "tokens")
    files = [folder / (values["data"]["prefix"] + suffix) for suffix in (".bin", ".idx")]
    if values["data"]["source"] == "text":
        files = [*text_files(folder), folder / TOKENIZER]
    return [describe_file(path, folder) for path in files]


# --- samples ----------------------------------------------------------------------------------------------------------

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
        """Return `sequence` + 1 tokens; the last one is only a label."""
        begin = row * self.sequence
        tokens = self.stream.part(begin, begin + self.sequence + 1)
        check_tokens(self.name, tokens, self.vocabulary)
        return tokens

    def global_batch(self, step: int, size: int) -> list[int]:
        """Return the samples of an optimizer step, the same in every layout."""
        return [self.order[place] for place in range(step * size, (step + 1) * size)]


def load_data(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, sequence = values["data"]["source"], values["model"]["sequence"]
    vocabulary, seed = values["model"]["vocabulary"], values["training"]["seed"]
    stream: Stream
    if source == "made_up":
        stream = SyntheticStream(values["data"]["tokens"], vocabulary, values["data"]["noise"])
    elif source == "indexed":
        prefix = indexed_prefix(data_folder(data_dir, "tokens"), values["data"]["prefix"])
        stream = TokenStream(read_index(prefix))
    else:
        folder = data_folder(data_dir, "tokens")
        stream = TextStream(text_files(folder), folder / TOKENIZER, vocabulary)
    if len(stream) <= sequence:
        raise BadInput(
            f"data.source={source} has {len(stream)} tokens, too few for one sample of {sequence} + 1; "
            "give more data or a smaller model.sequence"
        )
    order: Order = ShuffledSamples((len(stream) - 1) // sequence, seed)
    if values["data"]["order"] == "megatron":
        # As many samples as the run is made for, or as its steps take if these are more: it has at least one.
        training = values["training"]
        global_batch = training["batch_size"] * training["accumulate"] * max(1, values["parallel"]["dp"])
        num_samples = max(training["max_samples"], max(1, training["max_steps"]) * global_batch)
        stream, order = megatron_order(stream, sequence, num_samples, seed)
    samples = Samples(source, stream, order, sequence, vocabulary)
    return replace(samples, sha256=_digest(samples, values["data"]["order"]))


def _digest(samples: Samples, order: str) -> str:
    """Hash the number of samples, which decides their order, and some samples from the first to the last."""
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


def indexed_prefix(folder: Path, prefix: str) -> Path:
    path = Path(prefix)
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise BadInput(
            f"data.prefix={prefix!r} names no files below --data-dir; give their name without .bin and .idx, for "
            "example llama_00_text_document, and their folder as --data-dir"
        )
    return folder / path


# --- order ------------------------------------------------------------------------------------------------------------

LEAST_OF_LAST_EPOCH = 0.80
"""Megatron shuffles an epoch of which fewer samples are needed apart from the epochs before it."""
MAX_ENTRIES = 1 << 28
"""Documents or samples that every rank may list: 2 GiB."""


class Order(Protocol):
    def __getitem__(self, place: int) -> int:
        """Return the sample at this place of the run. Step n of global batch b has the places from n x b on."""
        ...


class ShuffledSamples:
    """Every epoch has all samples, in an order of its own."""

    def __init__(self, num_samples: int, seed: int) -> None:
        self._num_samples = num_samples
        self._seed = seed
        self._epoch = -1
        self._samples: list[int] = []

    def __getitem__(self, place: int) -> int:
        epoch, at = divmod(place, self._num_samples)
        if epoch != self._epoch:
            self._epoch, self._samples = epoch, list(range(self._num_samples))
            random.Random(f"{self._seed} {epoch}").shuffle(self._samples)
        return self._samples[at]


def megatron_order(stream: Stream, sequence: int, num_samples: int, seed: int) -> tuple[Stream, Order]:
    """Return the documents of as many epochs as `num_samples` take, shuffled and joined; and the shuffled samples of
    these.

    Epochs are shuffled together, but for the last one if little of it is needed. One generator draws all the shuffles.
    """
    num_tokens, num_documents = len(stream), len(stream.lengths)
    epochs = -(-(num_samples * sequence + 1) // num_tokens)
    num_entries = max(num_samples, epochs * num_documents)
    if num_entries >= MAX_ENTRIES:
        raise BadInput(
            f"data.order=megatron would list {num_entries} documents or samples, and the limit is {MAX_ENTRIES}; lower "
            "training.max_samples, or set data.order=samples"
        )
    numpy = _numpy()
    generator = numpy.random.RandomState(seed)
    total, before_last = ((count * num_tokens - 1) // sequence for count in (epochs, epochs - 1))
    is_last_apart = epochs > 1 and num_samples - before_last < int(LEAST_OF_LAST_EPOCH * ((num_tokens - 1) // sequence))

    def shuffled(values: Any) -> Any:
        generator.shuffle(values)
        return values

    together = epochs - 1 if is_last_apart else epochs
    documents = [
        shuffled(numpy.tile(numpy.arange(num_documents), count)) for count in (together, epochs - together) if count
    ]
    first = before_last if is_last_apart else total
    samples = [shuffled(numpy.arange(*ends)) for ends in ((0, first), (first, total)) if ends[0] < ends[1]]
    return ReorderedStream(stream, numpy.concatenate(documents)), _Listed(numpy.concatenate(samples))


class ReorderedStream:
    """Joins another stream's documents in the given order, each as often as it is listed."""

    def __init__(self, stream: Stream, documents: Any) -> None:
        numpy = _numpy()
        lengths = numpy.asarray(stream.lengths, dtype=numpy.int64)
        self._stream = stream
        self._begins = (numpy.cumsum(lengths) - lengths)[documents]
        self.lengths = lengths[documents]
        self._ends = numpy.cumsum(self.lengths)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def part(self, begin: int, end: int) -> list[int]:
        tokens: list[int] = []
        at = int(self._ends.searchsorted(begin, side="right"))
        while begin < end:
            rest = int(self._ends[at]) - begin
            first = int(self._begins[at]) + int(self.lengths[at]) - rest
            tokens += self._stream.part(first, first + min(rest, end - begin))
            begin, at = begin + rest, at + 1
        return tokens


class _Listed:
    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __getitem__(self, place: int) -> int:
        return int(self._samples[place])


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise Unsupported(
            "data.order=megatron needs the package numpy, whose random numbers it repeats: pip install numpy"
        ) from None
    return numpy
