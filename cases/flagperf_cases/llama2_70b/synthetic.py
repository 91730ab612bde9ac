"""A synthetic token stream that can be learned, the same on every machine."""

from __future__ import annotations

import random


class SyntheticStream:
    """Each token is followed by a fixed other token, except for a fraction `noise` of random ones. With noise 1 nothing
    can be learned."""

    def __init__(self, num_tokens: int, vocabulary: int, noise: float) -> None:
        rng = random.Random(f"llama2_70b {vocabulary}")
        followers = list(range(vocabulary))
        rng.shuffle(followers)
        self._tokens = [0]
        for _ in range(num_tokens - 1):
            is_noise = rng.random() < noise
            self._tokens.append(rng.randrange(vocabulary) if is_noise else followers[self._tokens[-1]])

    @property
    def lengths(self) -> list[int]:
        """One document."""
        return [len(self._tokens)]

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        return self._tokens[begin:end]
