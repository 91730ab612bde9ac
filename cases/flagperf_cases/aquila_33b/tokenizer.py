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
from flagperf_cases.data_files import is_there, read_json_object, read_lines, require_file, shown
from flagperf_cases.tokenizer_files import check_vocabulary, open_sentencepiece

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
    if is_there(folder / SENTENCEPIECE) and not is_there(folder / AQUILA[0]):
        return [folder / SENTENCEPIECE]
    return [require_file(folder / name, ADVICE) for name in AQUILA]


def open_tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    """Its ids have to fill the model's `vocabulary`, but for padding."""
    files = tokenizer_files(folder)
    return _sentencepiece(files[0], vocabulary) if len(files) == 1 else _aquila(files, vocabulary)


def special_ids(vocabulary: Path, special: Path) -> dict[str, int]:
    """Special tokens are not in the vocabulary: their ids follow it, in the order of their file."""
    words = read_json_object(vocabulary, ADVICE)
    first = len(words)
    if not all(type(number) is int for number in words.values()) or set(words.values()) != set(range(first)):
        raise BadInput(f"{vocabulary} does not number its words from 0 on; {ADVICE}")
    names = [line.strip() for line in read_lines(special, ADVICE) if line.strip()]
    ids = {name: first + number for number, name in enumerate(names)}
    for name in (BEGIN, END):
        if name not in ids:
            raise BadInput(f"{special} has no line {name}, which samples begin or end with; {ADVICE}")
    return ids


def _aquila(files: Sequence[Path], size: int) -> Tokenizer:
    vocabulary, merges, special = files
    ids = special_ids(vocabulary, special)
    check_vocabulary(vocabulary, max(ids.values()) + 1, size, ADVICE)
    read_lines(merges, ADVICE)
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
        raise BadInput(f"cannot read {vocabulary} with {merges}: {shown(error, 200)}; {ADVICE}") from None
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return Tokenizer(lambda text: engine.encode(text).ids, ids[BEGIN], ids[END])


def _sentencepiece(path: Path, size: int) -> Tokenizer:
    pieces = open_sentencepiece(path, ADVICE)
    check_vocabulary(path, pieces.vocab_size(), size, ADVICE)
    for name, token in (("BOS", pieces.bos_id()), ("EOS", pieces.eos_id())):
        if token < 0:
            raise BadInput(f"{path} has no {name} token, which samples begin or end with; {ADVICE}")
    return Tokenizer(pieces.encode, pieces.bos_id(), pieces.eos_id())
