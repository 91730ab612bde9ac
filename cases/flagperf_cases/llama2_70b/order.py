"""Which sample is trained when: by samples, or as in Megatron, whose loss curves can then be references.

Importable without torch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from flagperf.errors import BadInput, Unsupported

LEAST_OF_LAST_EPOCH = 0.80
"""Megatron shuffles an epoch of which fewer samples are needed apart from the epochs before it."""
MAX_ENTRIES = 1 << 28
"""Documents or samples that every rank may list: 2 GiB."""


class Stream(Protocol):
    """Tokens of documents that follow each other."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each document."""
        ...

    def __len__(self) -> int: ...

    def part(self, begin: int, end: int) -> list[int]: ...


class Order(Protocol):
    def __getitem__(self, place: int) -> int:
        """The sample at this place of the run. Step n of global batch b has the places from n x b on."""
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
    """The documents of as many epochs as `num_samples` take, shuffled and joined; and the shuffled samples of these.

    Epochs are shuffled together, but for the last one if little of it is needed. One generator draws all the shuffles.
    """
    num_tokens, num_documents = len(stream), len(stream.lengths)
    epochs = -(-(num_samples * sequence + 1) // num_tokens)
    _check_size(max(num_samples, epochs * num_documents))
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


def _check_size(num_entries: int) -> None:
    if num_entries >= MAX_ENTRIES:
        raise BadInput(
            f"data.order=megatron would list {num_entries} documents or samples, and the limit is {MAX_ENTRIES}; lower "
            "training.max_samples, or set data.order=samples"
        )


class ReorderedStream:
    """Another stream's documents in the given order, each as often as it is listed."""

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
