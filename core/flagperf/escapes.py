"""Characters of foreign text that control a terminal or the reading order: escape sequences, C1 controls, bidirectional
overrides, line separators, lone surrogates. Whatever a file, a tool or an argument says is printed without them."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_END = re.compile("[\n\r\v\f\x85\u2028\u2029\t]\\s*")


def one_line(text: str) -> str:
    """Line ends and tabs become spaces, so that a text cannot pass for several lines; other controls become visible."""
    return visible(_LINE_END.sub(" ", text.rstrip()))


def visible(text: str) -> str:
    """Every control as its escape in Python and JSON: `\\x1b`, `\\u202e`."""
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def without_controls(text: str) -> str:
    return _CONTROL.sub("", text)


def is_utf8(text: str) -> bool:
    """Whether every program can read it. Names of files and arguments may have bytes that are no characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def safe_json(text: str) -> str:
    """The same JSON value. JSON escapes only some of the controls; the others can only be inside its strings."""
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _escape(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if ord(letter) < 0x100 else f"\\u{ord(letter):04x}"
