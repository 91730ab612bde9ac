"""Text to token ids: Llama's SentencePiece model from disk, or the words of the made-up language.

SentencePiece is called directly. What transformers makes of a folder that has tokenizer.model and nothing else differs
from version to version: 5.x adds no BOS to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flagperf.errors import BadInput

LETTERS = "ABCD"


@dataclass(frozen=True)
class AnswerTokens:
    """How an answer goes on after `Answer:`. The next token is one of `letters`, after what all four begin with."""

    lead: tuple[int, ...]
    letters: tuple[int, ...]


class Tokenizer(Protocol):
    bos: int
    eos: int
    num_tokens: int

    def encode(self, text: str) -> list[int]:
        """Without BOS and EOS, which stand where the caller puts them."""
        ...

    def answers(self) -> AnswerTokens: ...


class SentencePieces:
    def __init__(self, path: Path) -> None:
        """Raises BadInput for a file that is no SentencePiece model, or one without BOS or EOS."""
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise BadInput(
                f"{path} is read by sentencepiece, which is not installed; pip install 'flagperf[run]' brings it"
            ) from None
        try:
            self._processor = SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as error:
            raise BadInput(
                f"{path} is not a SentencePiece model ({str(error).splitlines()[0]}); take tokenizer.model of Llama 2"
            ) from None
        self._path = path
        self.bos, self.eos = self._processor.bos_id(), self._processor.eos_id()
        self.num_tokens = self._processor.vocab_size()
        for name, token in (("BOS", self.bos), ("EOS", self.eos)):
            if token < 0:
                raise BadInput(f"{path} has no {name} token, which every row needs; take tokenizer.model of Llama 2")

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def answers(self) -> AnswerTokens:
        """A letter with its space is one piece. Very small vocabularies do without some of these: there the space comes
        first, for all four."""
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


class Words:
    """Whole words with their colon, marks and line ends; 0 is BOS, 1 is EOS.

    Raises KeyError for a word that it was not given.
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
