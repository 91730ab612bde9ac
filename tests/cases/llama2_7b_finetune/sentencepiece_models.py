"""Small SentencePiece models, trained for a test."""

from __future__ import annotations

import struct
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


def fill_vocabulary(path: Path, num_pieces: int) -> None:
    """Adds pieces that no text has, up to `num_pieces`. A serialized message grows by what is appended to it."""
    from sentencepiece import SentencePieceProcessor

    more = b""
    for number in range(SentencePieceProcessor(model_file=str(path)).vocab_size(), num_pieces):
        name = f"<unused {number}>".encode()
        piece = bytes([0x0A, len(name)]) + name + b"\x15" + struct.pack("<f", -1e4) + b"\x18\x05"
        more += bytes([0x0A, len(piece)]) + piece
    path.write_bytes(path.read_bytes() + more)
