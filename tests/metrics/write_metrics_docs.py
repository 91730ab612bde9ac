"""Writes the index of docs/metrics.md from the entries, so that the two cannot differ."""

from __future__ import annotations

import re
from pathlib import Path

from flagperf.kinds import KINDS
from flagperf.metrics.registry import ENTRIES

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
INDEX = re.compile(r"(?<=<!-- Written by `make docs` from here on. -->\n).*?(?=<!-- to here -->)", re.DOTALL)


def with_index(page: str) -> str:
    return INDEX.sub(lambda _: f"\n{_index()}\n", page)


def _index() -> str:
    head = ["| metric | title | unit | scope | version | kinds |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, ENTRIES), ""])


def _row(name: str) -> str:
    entry = ENTRIES[name]
    unit = entry.unit if isinstance(entry.unit, str) else "the case's unit"
    kinds = ", ".join(kind.name for kind in KINDS.values() if entry.group in kind.metrics)
    link = f"[{name}](#{re.sub(r'[^a-z0-9_-]', '', (entry.heading or name).lower())})"
    return f"| {link} | {entry.title['en']} | {unit or '-'} | {entry.scope} | {entry.version} | {kinds} |"


if __name__ == "__main__":
    PAGE.write_text(with_index(PAGE.read_text()))
