"""What Megatron does, written out without numpy: its order of samples and its learning rates.

GPTDataset lists the documents of all epochs, shuffles the list, walks through it and notes where every sample begins,
then shuffles the samples. Both shuffles are numpy's of a generator that is seeded by one number.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

Samples = list[list[int]]


class LegacyGenerator:
    """numpy.random.RandomState: the Mersenne Twister, seeded as its authors did in 2002, and numpy's way to shuffle."""

    def __init__(self, seed: int) -> None:
        state = [seed]
        for number in range(1, 624):
            state.append((1_812_433_253 * (state[-1] ^ (state[-1] >> 30)) + number) & 0xFFFFFFFF)
        self._twister = random.Random()
        self._twister.setstate((3, (*state, 624), None))

    def shuffle(self, values: list[int]) -> None:
        for last in range(len(values) - 1, 0, -1):
            other = self._up_to(last)
            values[last], values[other] = values[other], values[last]

    def _up_to(self, highest: int) -> int:
        """As many bits as `highest` has, drawn until they are not more than it."""
        mask = (1 << highest.bit_length()) - 1
        while (drawn := self._twister.getrandbits(32) & mask) > highest:
            pass
        return drawn


def megatron_samples(documents: Sequence[Sequence[int]], sequence: int, num_samples: int, seed: int) -> Samples:
    """All samples in the order in which they are trained."""
    tokens_per_epoch = sum(map(len, documents))
    epochs = 1
    while (epochs * tokens_per_epoch - 1) // sequence < num_samples:
        epochs += 1
    without_last = ((epochs - 1) * tokens_per_epoch - 1) // sequence
    apart = epochs > 1 and num_samples - without_last < int(0.8 * ((tokens_per_epoch - 1) // sequence))
    generator = LegacyGenerator(seed)
    listed: list[int] = []
    for group in (epochs - 1, 1) if apart else (epochs,):
        numbers = list(range(len(documents))) * group
        generator.shuffle(numbers)
        listed += numbers
    windows = list(_windows([documents[number] for number in listed], sequence))
    bounds = [0, without_last, len(windows)] if apart else [0, len(windows)]
    order: list[int] = []
    for begin, end in itertools.pairwise(bounds):
        numbers = list(range(begin, end))
        generator.shuffle(numbers)
        order += numbers
    return [windows[number] for number in order]


def _windows(documents: Sequence[Sequence[int]], sequence: int) -> Iterator[list[int]]:
    """The last token of a window is the first of the next one."""
    window: list[int] = []
    for document in documents:
        for token in document:
            window.append(token)
            if len(window) == sequence + 1:
                yield window
                window = [token]


def megatron_rates(num_steps: int, global_batch: int, train_samples: int) -> list[float]:
    """OptimizerParamScheduler with the arguments of the published script: it counts samples, and is advanced after a
    step."""
    highest, lowest, warmup = 0.00015, 1e-5, 0.01 * train_samples
    rates = []
    for consumed in range(0, num_steps * global_batch, global_batch):
        if consumed <= warmup:
            rates.append(highest * float(consumed) / float(warmup))
        elif consumed > train_samples:
            rates.append(lowest)
        else:
            ratio = float(consumed - warmup) / float(train_samples - warmup)
            rates.append(lowest + 0.5 * (math.cos(math.pi * ratio) + 1.0) * (highest - lowest))
    return rates
