"""Read tokenizers on disk that several cases use. Importable without torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from flagperf.errors import BadInput, Unsupported
from flagperf_cases.data_files import read_bytes, read_lines, shown

PADDING = 128
"""A model's vocabulary is padded to a multiple of this, at most."""
_MAX_BYTES = 64 << 20


def open_sentencepiece(path: Path, advice: str) -> Any:
    """Raise BadInput for a file that is not a SentencePiece model."""
    content = read_bytes(path, advice, _MAX_BYTES)
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise Unsupported(f"{path} needs the package sentencepiece: pip install sentencepiece") from None
    try:
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(content)
        if processor.vocab_size():
            return processor
        reason = "it has no pieces"
    except (RuntimeError, OSError) as error:
        reason = shown(str(error).partition("\n")[0])
    raise BadInput(f"{path} is not a SentencePiece model ({reason}); {advice}")


def read_words(path: Path, special: tuple[str, ...], advice: str) -> list[str]:
    """Read BERT's vocabulary: a word on each line. Its first word is the first of `special`, and it has them all."""
    words = read_lines(path, advice)
    if words[0] != special[0] or not set(special) <= set(words):
        raise BadInput(
            f"{path} is not BERT's vocabulary: that begins with {special[0]} and has {', '.join(special)}; {advice}"
        )
    if len(set(words)) < len(words):
        again, times = Counter(words).most_common(1)[0]
        raise BadInput(f"{path} has the word {shown(again)!r} {times} times; {advice}")
    return words


def check_vocabulary(path: Path, num_tokens: int, size: int, advice: str) -> None:
    """Check that `num_tokens` ids fill the `size` of the model's vocabulary, but for padding: a file that has many
    fewer was cut, or is of another model."""
    if size - PADDING < num_tokens <= size:
        return
    raise BadInput(
        f"{path} gives {num_tokens} tokens, {'more' if num_tokens > size else 'fewer'} than model.vocabulary={size}; "
        f"set that to {num_tokens} if this is the right file, else {advice}"
    )
