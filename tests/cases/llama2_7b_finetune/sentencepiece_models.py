"""Small SentencePiece models, trained for a test."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

TEXTS = ("the quick brown fox jumps over the lazy dog", "Answer: A B C D", "A. one B. two C. three D. four")


def train_tokenizer(path: Path, texts: Sequence[str] = TEXTS, num_pieces: int = 60, **settings: Any) -> Path:
    """A real SentencePiece model of a few pieces."""
    from sentencepiece import SentencePieceTrainer

    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*texts] * 20),
        model_writer=model,
        vocab_size=num_pieces,
        model_type="bpe",
        minloglevel=2,
        hard_vocab_limit=False,
        **settings,
    )
    path.write_bytes(model.getvalue())
    return path
