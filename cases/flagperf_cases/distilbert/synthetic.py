"""Sentences of a small artificial language, the same on every machine.

The majority of three opinion words decides the label, and "not" inverts the opinion word after it. A quarter of the
vocabulary is bad, a quarter good, the rest neutral. Both labels are equally frequent, and their sentences equally long.
"""

from __future__ import annotations

import random

CLS, SEP, NOT = 1, 2, 3
"""Special words of the language; 0 is padding, as in BERT's vocabulary."""


def synthetic_sentences(split: str, num_rows: int, vocabulary: int, sequence: int) -> tuple[list[list[int]], list[int]]:
    """Token ids of each sentence, and the labels. `split` is part of the seed."""
    rng = random.Random(f"sentences {split}")
    labels = [row % 2 for row in range(num_rows)]
    return [_sentence(rng, label, vocabulary, sequence) for label in labels], labels


def _sentence(rng: random.Random, label: int, vocabulary: int, sequence: int) -> list[int]:
    bad = NOT + 1
    quarter = (vocabulary - bad) // 4
    phrases = []
    for opinion in (label, label, rng.randrange(2)):
        negated = rng.random() < 0.03
        word = bad + quarter * (opinion ^ negated) + rng.randrange(quarter)
        phrases.append([NOT, word] if negated else [word])
    num_words = rng.randint(6, min(sequence, 64) - 2)
    while sum(map(len, phrases)) < num_words:
        phrases.append([rng.randrange(bad + 2 * quarter, vocabulary)])
    rng.shuffle(phrases)
    return [CLS, *(word for phrase in phrases for word in phrase), SEP]
