"""A published page as text: headings, facts and tables with their line numbers. It knows Markdown and no benchmark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.files import read_regular

MAX_PAGE_BYTES = 4 << 20
MAX_CELLS = 20_000
"""Of all tables of a page. The largest published page has 200."""
MAX_LINE = 10_000
"""Characters of a line that are looked at. The longest published one has 500."""

_HEADING = re.compile(r"\s*(?:[-*+]\s+)?(#{1,6})\s+(.*)$")
_DELIMITER = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$")
_FACT = re.compile(r"(\s*)[-*+]\s+(?=\S)([^|：:`]{1,40}?)\s*[：:]\s*(.*)$")
_FENCE = re.compile(r"\s*(```|~~~)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+.!|~-])")
_BAR = re.compile(r"(?<!\\)\|")


class Heading(msgspec.Struct, frozen=True):
    level: int
    text: str
    line: int


class PageFact(msgspec.Struct, frozen=True):
    """A bullet `key: value`, with either colon."""

    key: str
    value: str
    line: int
    has_children: bool
    """Bullets below it say what it does not."""


class TableRow(msgspec.Struct, frozen=True):
    cells: tuple[str, ...]
    line: int
    is_glued: bool = False
    """A sentence directly below the table, which Markdown takes for a row."""


class SourceTable(msgspec.Struct, frozen=True):
    heads: tuple[str, ...]
    line: int
    rows: tuple[TableRow, ...]


class SourcePage(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    lines: tuple[str, ...]
    headings: tuple[Heading, ...]
    facts: tuple[PageFact, ...]
    tables: tuple[SourceTable, ...]


def read_page(path: Path) -> SourcePage:
    """Raises BadInput for what is not a page: no file, no text, too large."""
    try:
        content = read_regular(path, MAX_PAGE_BYTES, follow_links=True)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if b"\0" in content:
        raise BadInput(f"{path} is not a page: it has binary content; give a Markdown file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not a page in UTF-8: {error.reason} at byte {error.start}") from None
    return parse_page(text, str(path), hashlib.sha256(content).hexdigest())


def parse_page(text: str, path: str = "", sha256: str = "") -> SourcePage:
    lines = tuple(line.rstrip("\r")[:MAX_LINE] for line in text.split("\n"))
    shown = _without_code(lines)
    return SourcePage(path, sha256, lines, tuple(_headings(shown)), tuple(_facts(shown)), tuple(_tables(shown, path)))


def plain(text: str) -> str:
    """Without bold marks and escapes."""
    return _ESCAPE.sub(r"\1", text.replace("**", "")).strip()


def _without_code(lines: Sequence[str]) -> list[str]:
    """Lines of code and comments are empty: what they hold is no table."""
    found, fence, in_comment = [], "", False
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            found.append("")
            fence = "" if mark and mark[1] == fence else fence
        elif mark:
            found.append("")
            fence = mark[1]
        else:
            is_comment = in_comment or line.lstrip().startswith("<!--")
            in_comment = is_comment and "-->" not in line
            found.append("" if is_comment else line)
    return found


def _headings(lines: Sequence[str]) -> Iterator[Heading]:
    for number, line in enumerate(lines, start=1):
        found = _HEADING.match(line)
        if found:
            yield Heading(len(found[1]), plain(found[2].rstrip(" #")), number)


def _facts(lines: Sequence[str]) -> Iterator[PageFact]:
    for number, line in enumerate(lines, start=1):
        found = _FACT.match(line)
        if found and not _HEADING.match(line):
            following = next((each for each in lines[number:] if each.strip()), "")
            indent = len(following) - len(following.lstrip())
            yield PageFact(plain(found[2]), plain(found[3]), number, indent > len(found[1]) + 1)


def _tables(lines: Sequence[str], path: str) -> Iterator[SourceTable]:
    number, cells = 0, 0
    while number + 1 < len(lines):
        head, below = lines[number], lines[number + 1]
        if "|" not in head or "|" not in below or not _DELIMITER.match(below.strip()):
            number += 1
            continue
        rows = list(_rows(lines, number + 2))
        cells += sum(len(row.cells) for row in rows)
        if cells > MAX_CELLS:
            raise BadInput(f"{path or 'the page'} has tables of more than {MAX_CELLS:,} cells; it is not read")
        yield SourceTable(_cells(head), number + 1, tuple(rows))
        number += 2 + len(rows)


def _rows(lines: Sequence[str], start: int) -> Iterator[TableRow]:
    """Until an empty line or the start of another block."""
    for number in range(start, len(lines)):
        line = lines[number]
        if not line.strip() or _HEADING.match(line) or re.match(r"\s*([-*+]|\d+\.)\s|\s*>|\s*</?[a-zA-Z]", line):
            return
        yield TableRow(_cells(line), number + 1, is_glued="|" not in line)


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip()
    inner = inner[1:] if inner.startswith("|") else inner
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(plain(cell) for cell in _BAR.split(inner))
