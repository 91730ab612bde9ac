"""Tokenizers: Llama's SentencePiece model from disk, or whole words for synthetic data.

SentencePiece is called directly, because what transformers makes of a folder that has only tokenizer.model differs from
version to version: 5.x adds no BOS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flagperf.errors import BadInput
from flagperf_cases.tokenizer_files import open_sentencepiece

LETTERS = "ABCD"


@dataclass(frozen=True)
class AnswerTokens:
    """The tokens that follow `Answer:`: `lead`, common to all four answers, then one of `letters`."""

    lead: tuple[int, ...]
    letters: tuple[int, ...]


class Tokenizer(Protocol):
    bos: int
    eos: int
    num_tokens: int

    def encode(self, text: str) -> list[int]:
        """Without BOS and EOS, which the caller adds."""
        ...

    def answers(self) -> AnswerTokens: ...


class SentencePieceTokenizer:
    def __init__(self, path: Path) -> None:
        """Raises BadInput for a file that is not a SentencePiece model, or has no BOS or EOS."""
        self._processor = open_sentencepiece(path, "take tokenizer.model of Llama 2")
        self._path = path
        self.bos, self.eos = self._processor.bos_id(), self._processor.eos_id()
        self.num_tokens = self._processor.vocab_size()
        for name, token in (("BOS", self.bos), ("EOS", self.eos)):
            if token < 0:
                raise BadInput(f"{path} has no {name} token, which every row needs; take tokenizer.model of Llama 2")

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def answers(self) -> AnswerTokens:
        """Usually a letter with its leading space is one piece. Very small vocabularies lack some of these; then the
        space is a separate piece for all four letters."""
        with_space = [self._piece(f"▁{letter}") for letter in LETTERS]
        if None not in with_space:
            return AnswerTokens((), tuple(token for token in with_space if token is not None))
        pieces = [self._piece(piece) for piece in ("▁", *LETTERS)]
        found = [token for token in pieces if token is not None]
        if len(found) < len(pieces):
            raise BadInput(f"{self._path} has no pieces for the letters A to D; take tokenizer.model of Llama 2")
        return AnswerTokens((found[0],), tuple(found[1:]))

    def _piece(self, text: str) -> int | None:
        token = self._processor.piece_to_id(text)
        return None if token == self._processor.unk_id() else int(token)


class WordTokenizer:
    """Whole words (with a trailing colon), punctuation marks and line ends; 0 is BOS, 1 is EOS.

    Knows the words of `texts` and raises KeyError for any other.
    """

    bos, eos = 0, 1

    def __init__(self, texts: Sequence[str]) -> None:
        words = sorted({word for text in texts for word in self._split(text)} | set(LETTERS))
        self._ids = {word: number for number, word in enumerate(words, 2)}
        self.num_tokens = len(words) + 2

    def encode(self, text: str) -> list[int]:
        return [self._ids[word] for word in self._split(text)]

    def answers(self) -> AnswerTokens:
        return AnswerTokens((), tuple(self._ids[letter] for letter in LETTERS))

    @staticmethod
    def _split(text: str) -> list[str]:
        return re.findall(r"\w+:?|[^\w ]", text)
