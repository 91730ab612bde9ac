"""BERT's lower-casing WordPiece tokenizer, and GLM's two answer tokens after it. Importable without torch."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf_cases.glm.synthetic import WORDS

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer

    Tokens = array[int]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_ANSWER_TOKENS = 2
"""Start and end of an answer. Their ids follow the vocabulary."""

_TEXTS_PER_CALL = 1000
"""Limits memory: the tokenizer's own results take a hundred bytes per token."""


class WordPieceTokenizer:
    def __init__(self, vocabulary: str | dict[str, int]) -> None:
        # The loader's worker processes never tokenize. The variable prevents a warning about forking in each of them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import BertWordPieceTokenizer

        self._tokenizer: BertWordPieceTokenizer = BertWordPieceTokenizer(vocabulary, lowercase=True)
        self.pad, self.cls, self.mask = map(self._tokenizer.token_to_id, ("[PAD]", "[CLS]", "[MASK]"))
        self.start = self._tokenizer.get_vocab_size()
        self.end = self.start + 1

    @classmethod
    def from_file(cls, path: Path) -> WordPieceTokenizer:
        return cls(str(path))

    @classmethod
    def for_synthetic_data(cls) -> WordPieceTokenizer:
        return cls({word: index for index, word in enumerate((*SPECIAL, *WORDS))})

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Without special tokens."""
        found: list[Tokens] = []
        for first in range(0, len(texts), _TEXTS_PER_CALL):
            batch = list(texts[first : first + _TEXTS_PER_CALL])
            found += [
                array("i", encoding.ids) for encoding in self._tokenizer.encode_batch(batch, add_special_tokens=False)
            ]
        return found
