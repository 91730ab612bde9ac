"""Read streams of tokens: Megatron's indexed datasets, text files, and a synthetic one. Importable without torch."""

from __future__ import annotations

import mmap
import random
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flagperf.errors import BadInput
from flagperf_cases.data_files import read_bytes, read_lines, require_file
from flagperf_cases.tokenizer_files import check_vocabulary, open_sentencepiece


class Stream(Protocol):
    """Gives the tokens of documents that follow each other."""

    @property
    def lengths(self) -> Sequence[int]:
        """Count the tokens of each document."""
        ...

    def __len__(self) -> int: ...

    def part(self, begin: int, end: int) -> list[int]: ...


# --- Megatron's indexed datasets --------------------------------------------------------------------------------------

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
TOKEN_TYPES = {1: ("B", 1), 2: ("b", 1), 3: ("h", 2), 4: ("i", 4), 5: ("q", 8), 8: ("H", 2)}
"""dtype code -> struct letter and bytes; 6 and 7 are floats, which cannot be tokens."""

MAX_INDEX_BYTES = 4 << 30

GET_INDEX = "write it with Megatron's preprocess_data.py"


@dataclass(frozen=True)
class Index:
    path: Path
    """Of the .bin file."""
    letter: str
    item_bytes: int
    num_tokens: int
    lengths: array[int]
    """Tokens of each sequence."""


def read_index(prefix: Path) -> Index:
    """Raise BadInput for another file format, a truncated index, and one that does not match its .bin."""
    idx = require_file(prefix.with_name(prefix.name + ".idx"), GET_INDEX)
    data = require_file(prefix.with_name(prefix.name + ".bin"), GET_INDEX)
    content = read_bytes(idx, GET_INDEX, MAX_INDEX_BYTES)
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise BadInput(f"{idx} does not begin as Megatron's index files do ({MAGIC!r}); {GET_INDEX}")
    _, version, code, num_sequences, num_documents = HEADER.unpack_from(content)
    if version != VERSION:
        raise BadInput(f"{idx} has version {version}, and only version {VERSION} is supported; {GET_INDEX}")
    if code not in TOKEN_TYPES:
        raise BadInput(f"{idx} says that its tokens have type {code}, which is not an integer type; {GET_INDEX}")
    letter, item_bytes = TOKEN_TYPES[code]
    wanted = HEADER.size + 12 * num_sequences + 8 * num_documents
    if len(content) != wanted:
        raise BadInput(
            f"{idx} has {len(content)} bytes, and an index of {num_sequences} sequences and {num_documents} document "
            f"ends has {wanted}: it is truncated or not an index; {GET_INDEX}"
        )
    lengths = _checked_lengths(idx, content, num_sequences, item_bytes)
    num_tokens = sum(lengths)
    if not num_tokens:
        raise BadInput(f"{idx} has no tokens; {GET_INDEX} from text that is not empty")
    if data.stat().st_size != num_tokens * item_bytes:
        raise BadInput(
            f"{data} has {data.stat().st_size} bytes, and its index names {num_tokens} tokens of {item_bytes} bytes: "
            f"{num_tokens * item_bytes}; one of the two is truncated, copy both again"
        )
    return Index(data, letter, item_bytes, num_tokens, lengths)


def _checked_lengths(idx: Path, content: bytes, num_sequences: int, item_bytes: int) -> array[int]:
    """Return the lengths. Sequences have to follow each other without gaps, so that .bin is one token stream."""
    view = memoryview(content)
    middle = HEADER.size + 4 * num_sequences
    lengths = view[HEADER.size : middle].cast("i")
    offsets = view[middle : middle + 8 * num_sequences].cast("q")
    expected = 0
    for number, (length, offset) in enumerate(zip(lengths, offsets, strict=True)):
        if length < 0 or offset != expected:
            raise BadInput(
                f"{idx}: sequence {number} of length {length} begins at byte {offset}, expected {expected}; {GET_INDEX}"
            )
        expected += length * item_bytes
    return array("i", lengths)


class TokenStream:
    """Gives the tokens of a memory-mapped .bin file."""

    def __init__(self, index: Index) -> None:
        with index.path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.lengths = index.lengths
        self._tokens: Any = memoryview(self._map).cast(index.letter)  # type: ignore[call-overload]

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        tokens: list[int] = self._tokens[begin:end].tolist()
        return tokens


# --- text -------------------------------------------------------------------------------------------------------------

TOKENIZER = Path("tokenizer") / "tokenizer.model"
TEXTS = "text"


def text_files(folder: Path) -> list[Path]:
    found = sorted((folder / TEXTS).glob("*.txt"))
    if not found:
        raise BadInput(f"{folder / TEXTS} has no .txt files; put the text there, or set data.source=indexed")
    return found


class TextStream:
    """Tokenizes text files by SentencePiece. A file is a document, from BOS to EOS."""

    def __init__(self, files: Sequence[Path], tokenizer: Path, vocabulary: int) -> None:
        pieces = open_sentencepiece(tokenizer, "it is Llama 2's tokenizer.model")
        check_vocabulary(tokenizer, pieces.vocab_size(), vocabulary, "take Llama 2's tokenizer.model")
        self._tokens = array("i")
        self.lengths: list[int] = []
        for path in files:
            text = "\n".join(read_lines(path, "save it as UTF-8"))
            tokens = [pieces.bos_id(), *pieces.encode(text), pieces.eos_id()]
            self.lengths.append(len(tokens))
            self._tokens.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        return self._tokens[begin:end].tolist()


# --- synthetic --------------------------------------------------------------------------------------------------------


class SyntheticStream:
    """Each token is followed by a fixed other token, except for a fraction `noise` of random ones. With noise 1 nothing
    can be learned."""

    def __init__(self, num_tokens: int, vocabulary: int, noise: float) -> None:
        rng = random.Random(f"llama2_70b {vocabulary}")
        followers = list(range(vocabulary))
        rng.shuffle(followers)
        self._tokens = [0]
        for _ in range(num_tokens - 1):
            is_noise = rng.random() < noise
            self._tokens.append(rng.randrange(vocabulary) if is_noise else followers[self._tokens[-1]])

    @property
    def lengths(self) -> list[int]:
        """Return the length of the one document."""
        return [len(self._tokens)]

    def __len__(self) -> int:
        return len(self._tokens)

    def part(self, begin: int, end: int) -> list[int]:
        return self._tokens[begin:end]
