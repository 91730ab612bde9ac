"""Reads a generated page back, as a parser of pages would (render/markdown.py says how)."""

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


def unpadded(text: str) -> str:
    """The page with one space on each side of a cell, to look for rows in it."""
    return re.sub(r" +\|", " |", text)


def value(cell: str) -> tuple[str, list[int]]:
    """What a parser does: the text without its emphasis, and the numbers of its footnotes."""
    text, notes = re.fullmatch(r"(.*?)((?:\[\^\d+\])*)", cell).groups()
    return re.sub(r"^\*\*(.*)\*\*$", r"\1", text), [int(number) for number in re.findall(r"\d+", notes)]


def performance(text: str) -> list[dict[str, str]]:
    """Rows of the performance table by the names of their columns, without the stars of headline metrics."""
    head, *rows = tables(text)[1]
    names = ["configuration", *(name.removeprefix("\\*") for name in head[1:])]
    return [dict(zip(names, row, strict=True)) for row in rows]


def footnotes(text: str) -> dict[int, str]:
    return {int(number): rest for number, rest in re.findall(r"^\[\^(\d+)\]: (.*)$", text, re.MULTILINE)}


def notes(text: str) -> dict[str, list[str]]:
    """The notes about the runs by their subjects."""
    found: dict[str, list[str]] = {}
    lines = re.split(r"^### (?:Notes|注)$", text, flags=re.MULTILINE)[1].splitlines()
    for line in lines:
        if line.startswith("- "):
            found[line[2:]] = []
        elif line.startswith("  - "):
            found[list(found)[-1]].append(line[4:])
    return found
