"""Markdown out of plain text. Nothing is escaped before it comes here, and everything is here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flagperf.report.cells import Cell, explanations
from flagperf.report.table import Table, printable
from flagperf.report.texts import Lang, say

_SPECIAL = re.compile(
    r"""[\\`*<|\[\]~]                     # wherever they stand
    |(?<![^\W_])_|_(?![^\W_])             # an underscore that is not inside a word
    |&(?=\#?\w+;)                         # the beginning of an entity
    """,
    re.VERBOSE,
)


class Notes:
    """The notes of one page: numbered by first use, the same text under the same number."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def number(self, text: str) -> int:
        if text not in self._texts:
            self._texts.append(text)
        return self._texts.index(text) + 1

    def blocks(self, lang: Lang) -> list[str]:
        return [say("note", lang, number=number, text=escape(text)) for number, text in enumerate(self._texts, start=1)]


def escape(text: str) -> str:
    """`text` so that Markdown shows exactly it, on one line, also inside a table."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], printable(text))


def cell(content: Cell, notes: Notes, lang: Lang) -> str:
    """The form is described at the top of cells.py."""
    numbers = [str(notes.number(text)) for text in explanations(content, lang)]
    return f"{escape(content.text)} [{','.join(numbers)}]" if numbers else escape(content.text)


def bold(markdown: str) -> str:
    return f"**{markdown}**"


def table(content: Table) -> str:
    """A table whose cells are Markdown already."""
    return "\n".join(map(_line, (content.head, ["---"] * len(content.head), *content.rows)))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
