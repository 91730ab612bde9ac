"""Random token sequences of random lengths, the same on every machine."""

from __future__ import annotations

import random


def synthetic_tokens(num_samples: int, vocabulary: int, sequence: int) -> list[tuple[int, ...]]:
    """`sequence` is the largest number of scored tokens; a sample has one token more."""
    rng = random.Random("aquila_33b")
    lengths = [rng.randint(max(2, sequence // 4), sequence) for _ in range(num_samples)]
    return [tuple(rng.randrange(vocabulary) for _ in range(length + 1)) for length in lengths]
