"""From clozes to sequences of word pieces, laid out as GLM reads them.

    [CLS] passage  query up to the blank  [MASK]  rest of the query  [PAD] | start-of-piece  answer
    text, seen from everywhere                                             | predicted piece by piece, then its end

Importable without torch.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.errors import BadInput
from flagperf_cases.glm.record import BLANK, Cloze
from flagperf_cases.glm.stories import WORDS

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer

    Pieces = array[int]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_MARKS = 2
"""Start and end of an answer, which follow the vocabulary."""

NUM_FRAME = 4
"""Positions that hold neither text nor answer: [CLS], [MASK], [PAD], start-of-piece."""

AT_ONCE = 1000
"""Texts per call of the tokenizer, whose results take a hundred bytes per piece."""


class WordPieces:
    """BERT's lower-casing word pieces."""

    def __init__(self, vocabulary: str | dict[str, int]) -> None:
        # Worker processes of the loader never tokenise; set, the variable saves each of them a warning about being
        # forked.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import BertWordPieceTokenizer

        self._tokenizer: BertWordPieceTokenizer = BertWordPieceTokenizer(vocabulary, lowercase=True)
        self.pad, self.cls, self.mask = map(self._tokenizer.token_to_id, ("[PAD]", "[CLS]", "[MASK]"))
        self.start = self._tokenizer.get_vocab_size()
        self.end = self.start + 1

    @classmethod
    def of_file(cls, path: Path) -> WordPieces:
        return cls(str(path))

    @classmethod
    def of_stories(cls) -> WordPieces:
        return cls({word: index for index, word in enumerate((*SPECIAL, *WORDS))})

    def cut(self, texts: Sequence[str]) -> list[Pieces]:
        found: list[Pieces] = []
        for first in range(0, len(texts), AT_ONCE):
            encodings = self._tokenizer.encode_batch(list(texts[first : first + AT_ONCE]), add_special_tokens=False)
            found += [array("i", encoding.ids) for encoding in encodings]
        return found


@dataclass(frozen=True)
class Sample:
    """A cloze in pieces; texts that samples share are shared here too."""

    passage: Pieces
    before: Pieces
    after: Pieces
    candidates: tuple[Pieces, ...]
    texts: tuple[str, ...]
    """The candidates as they were."""
    right: frozenset[int]


@dataclass(frozen=True)
class Filled:
    """A text with its answer, without padding."""

    tokens: list[int]
    context: int
    """Length of the text."""
    blank: int
    """Where the text has [MASK]."""
    targets: list[int]
    """What is to be predicted from start-of-piece on."""


@dataclass(frozen=True)
class Samples:
    name: str
    samples: list[Sample]
    pieces: WordPieces
    length: int
    """Positions of a sequence, padding included."""

    def __len__(self) -> int:
        return len(self.samples)

    def filled(self, row: int, candidate: int) -> Filled:
        """Only the passage is ever shortened, from its end."""
        sample, pieces = self.samples[row], self.pieces
        answer = sample.candidates[candidate]
        room = self.length - NUM_FRAME - len(sample.before) - len(sample.after) - len(answer)
        text = [pieces.cls, *sample.passage[:room], *sample.before]
        blank = len(text)
        text += [pieces.mask, *sample.after, pieces.pad]
        return Filled([*text, pieces.start, *answer], len(text), blank, [*answer, pieces.end])

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for sample in self.samples:
            for pieces in (sample.passage, sample.before, sample.after, *sample.candidates):
                digest.update(len(pieces).to_bytes(4, "little") + pieces.tobytes())
        return digest.hexdigest()


def cut_samples(name: str, clozes: Iterable[Cloze], pieces: WordPieces, length: int) -> Samples:
    """Raises BadInput for a query that does not fit with all of its candidates."""
    clozes = list(clozes)
    texts = dict.fromkeys(text for cloze in clozes for text in _texts(cloze))
    cut = dict(zip(texts, pieces.cut(list(texts)), strict=True))
    samples = []
    for cloze in clozes:
        passage, before, after, *candidates = (cut[text] for text in _texts(cloze))
        sample = Sample(passage, before, after, tuple(candidates), cloze.candidates, cloze.right)
        _check_room(name, cloze, sample, length)
        samples.append(sample)
    return Samples(name, samples, pieces, length)


def swap_passages(samples: Samples) -> Samples:
    """Every query with the passage of another one: nothing is left that could be learnt."""
    half = len(samples) // 2
    passages = [sample.passage for sample in (*samples.samples[half:], *samples.samples[:half])]
    swapped = [replace(sample, passage=passage) for sample, passage in zip(samples.samples, passages, strict=True)]
    return replace(samples, samples=swapped)


def _texts(cloze: Cloze) -> tuple[str, ...]:
    before, _, after = cloze.query.partition(BLANK)
    return (cloze.passage, before, after, *cloze.candidates)


def _check_room(name: str, cloze: Cloze, sample: Sample, length: int) -> None:
    needed = NUM_FRAME + len(sample.before) + len(sample.after) + max(map(len, sample.candidates))
    if needed > length:
        raise BadInput(
            f"{name}: the query {cloze.query[:60]!r} takes {needed} positions with its longest candidate, and "
            f"model.sequence is {length}; set that to {needed} or more"
        )
