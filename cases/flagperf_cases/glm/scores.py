"""The official figures of ReCoRD: exact match and F1 of texts, after both are made plain."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(guess: str, answers: Iterable[str]) -> float:
    return float(plain(guess) in {plain(answer) for answer in answers})


def f1(guess: str, answers: Iterable[str]) -> float:
    """Of the best answer."""
    return max(_overlap(plain(guess).split(), plain(answer).split()) for answer in answers)


def plain(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def _overlap(guess: list[str], answer: list[str]) -> float:
    """Harmonic mean of precision and recall of words, each as often as it occurs."""
    common = (Counter(guess) & Counter(answer)).total()
    return 2 * common / (len(guess) + len(answer)) if common else 0.0
