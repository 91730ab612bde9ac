"""Reads a generated page back, as a parser of pages would."""

from __future__ import annotations

import re

LANGUAGES = ("en", "zh")


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a page as rows of cells, the head first, without its line of dashes."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif found[-1]:
            found.append([])
    return [[table[0], *table[2:]] for table in found if table]


def value(cell: str) -> str:
    """What a parser does: cut the numbers of notes off."""
    return re.sub(r" \[\d+(,\d+)*\]$", "", cell)


def performance(text: str) -> list[dict[str, str]]:
    head, *rows = tables(text)[1]
    return [dict(zip(["configuration", *head[1:]], row, strict=True)) for row in rows]


def notes(text: str) -> dict[int, str]:
    return {int(number): rest for number, rest in re.findall(r"^(?:注|Note )(\d+)[：:] ?(.*)$", text, re.MULTILINE)}
