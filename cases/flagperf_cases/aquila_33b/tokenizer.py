"""Tokenizers: Aquila's byte-level BPE (vocab.json, merges.txt, special_tokens.txt), or a SentencePiece model.

The packages behind them are imported when a tokenizer is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagperf.errors import BadInput, Unsupported
from flagperf_cases.data_files import read_json_object, read_lines, require_file

AQUILA = ("vocab.json", "merges.txt", "special_tokens.txt")
SENTENCEPIECE = "tokenizer.model"
BEGIN, END = "[CLS]", "</s>"
ADVICE = "take vocab.json, merges.txt and special_tokens.txt of Aquila's own tokenizer"


@dataclass(frozen=True)
class Tokenizer:
    encode: Callable[[str], Sequence[int]]
    begin: int
    end: int


def tokenizer_files(folder: Path) -> list[Path]:
    """Aquila's files, unless the folder has only a SentencePiece model."""
    if (folder / SENTENCEPIECE).is_file() and not (folder / AQUILA[0]).is_file():
        return [folder / SENTENCEPIECE]
    return [require_file(folder / name, ADVICE) for name in AQUILA]


def open_tokenizer(folder: Path) -> Tokenizer:
    files = tokenizer_files(folder)
    return _sentencepiece(files[0]) if len(files) == 1 else _aquila(*files)


def special_ids(vocabulary: Path, special: Path) -> dict[str, int]:
    """Special tokens are not in the vocabulary: their ids follow it, in the order of their file."""
    first = len(read_json_object(vocabulary, ADVICE))
    names = [line.strip() for line in read_lines(special, ADVICE) if line.strip()]
    ids = {name: first + number for number, name in enumerate(names)}
    for name in (BEGIN, END):
        if name not in ids:
            raise BadInput(f"{special} has no line {name}, which samples begin or end with; {ADVICE}")
    return ids


def _aquila(vocabulary: Path, merges: Path, special: Path) -> Tokenizer:
    ids = special_ids(vocabulary, special)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    try:
        from tokenizers import Tokenizer as Engine
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import ByteLevel
    except ImportError:
        raise Unsupported("Aquila's tokenizer needs the package tokenizers: pip install tokenizers") from None
    try:
        engine: Any = Engine(BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # noqa: BLE001  the package raises plain Exceptions
        raise BadInput(f"cannot read {vocabulary} with {merges}: {error}; {ADVICE}") from None
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return Tokenizer(lambda text: engine.encode(text).ids, ids[BEGIN], ids[END])


def _sentencepiece(path: Path) -> Tokenizer:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise Unsupported(f"{path} needs the package sentencepiece: pip install sentencepiece") from None
    try:
        pieces = SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise BadInput(f"{path} is not a SentencePiece model ({str(error).splitlines()[0]}); {ADVICE}") from None
    return Tokenizer(pieces.encode, pieces.bos_id(), pieces.eos_id())
