"""Plain text for terminals and tables: control characters removed, width in columns, wrapped between words."""

from __future__ import annotations

import re
import unicodedata

from flagperf.escapes import without_controls

_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_WORD = re.compile(rf" ?(?:[{_WIDE}]|[^ {_WIDE}]+)")
"""A word with its leading space. Chinese has no spaces and may be wrapped after every character."""


def printable(text: str) -> str:
    """One line without control characters, so that output of files and tools cannot break a table or control a
    terminal."""
    return without_controls(" ".join(text.split()))


def display_width(text: str) -> int:
    """Terminal columns: Chinese characters take two, combining accents none."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def fold(text: str, width: int) -> list[str]:
    """Wrap into lines of at most `width` columns. A longer word gets its own line and is not split."""
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and display_width(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word if lines[-1] else word.lstrip()
    return lines


def longest_word(text: str) -> int:
    return max((display_width(word.lstrip()) for word in _WORD.findall(text)), default=0)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
