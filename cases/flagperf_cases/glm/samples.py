"""Clozes as token sequences, in the layout that GLM reads.

    [CLS] passage  query up to the blank  [MASK]  rest of the query  [PAD] | start-of-piece  answer
    text, visible from every position                                      | predicted token by token, then its end

Importable without torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flagperf.errors import BadInput
from flagperf_cases.glm.record_dataset import BLANK, Cloze
from flagperf_cases.glm.tokenizer import WordPieceTokenizer

if TYPE_CHECKING:
    from flagperf_cases.glm.tokenizer import Tokens

NUM_FRAME_TOKENS = 4
"""Positions that hold neither text nor answer: [CLS], [MASK], [PAD], start-of-piece."""


@dataclass(frozen=True)
class Sample:
    """A tokenized cloze. Samples with the same passage share its tokens."""

    passage: Tokens
    before: Tokens
    after: Tokens
    candidates: tuple[Tokens, ...]
    texts: tuple[str, ...]
    """The candidates as text."""
    right: frozenset[int]
    """Indices of the candidates that are answers."""


@dataclass(frozen=True)
class FilledSequence:
    """A text followed by one candidate, without padding."""

    tokens: list[int]
    context: int
    """Length of the text."""
    blank: int
    """Position of [MASK]."""
    targets: list[int]
    """What is to be predicted from start-of-piece on."""


@dataclass(frozen=True)
class Samples:
    name: str
    samples: list[Sample]
    tokenizer: WordPieceTokenizer
    length: int
    """Positions of a sequence, padding included."""

    def __len__(self) -> int:
        return len(self.samples)

    def fill_blank(self, row: int, candidate: int) -> FilledSequence:
        """Only the passage is ever truncated, at its end."""
        sample, tokenizer = self.samples[row], self.tokenizer
        answer = sample.candidates[candidate]
        room = self.length - NUM_FRAME_TOKENS - len(sample.before) - len(sample.after) - len(answer)
        text = [tokenizer.cls, *sample.passage[:room], *sample.before]
        blank = len(text)
        text += [tokenizer.mask, *sample.after, tokenizer.pad]
        return FilledSequence([*text, tokenizer.start, *answer], len(text), blank, [*answer, tokenizer.end])

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for sample in self.samples:
            for tokens in (sample.passage, sample.before, sample.after, *sample.candidates):
                digest.update(len(tokens).to_bytes(4, "little") + tokens.tobytes())
        return digest.hexdigest()


def make_samples(name: str, clozes: Iterable[Cloze], tokenizer: WordPieceTokenizer, length: int) -> Samples:
    """Raises BadInput for a query that does not fit into `length` with all of its candidates."""
    clozes = list(clozes)
    texts = list(dict.fromkeys(text for cloze in clozes for text in _texts(cloze)))
    tokens = dict(zip(texts, tokenizer.encode(texts), strict=True))
    samples = []
    for cloze in clozes:
        passage, before, after, *candidates = (tokens[text] for text in _texts(cloze))
        sample = Sample(passage, before, after, tuple(candidates), cloze.candidates, cloze.right)
        _check_length(name, cloze, sample, length)
        samples.append(sample)
    return Samples(name, samples, tokenizer, length)


def swap_passages(samples: Samples) -> Samples:
    """Every query with the passage of another one, so that nothing can be learned."""
    half = len(samples) // 2
    passages = [sample.passage for sample in (*samples.samples[half:], *samples.samples[:half])]
    swapped = [replace(sample, passage=passage) for sample, passage in zip(samples.samples, passages, strict=True)]
    return replace(samples, samples=swapped)


def _texts(cloze: Cloze) -> tuple[str, ...]:
    before, _, after = cloze.query.partition(BLANK)
    return (cloze.passage, before, after, *cloze.candidates)


def _check_length(name: str, cloze: Cloze, sample: Sample, length: int) -> None:
    needed = NUM_FRAME_TOKENS + len(sample.before) + len(sample.after) + max(map(len, sample.candidates))
    if needed > length:
        raise BadInput(
            f"{name}: the query {cloze.query[:60]!r} takes {needed} positions with its longest candidate, and "
            f"model.sequence is {length}; set that to {needed} or more"
        )
