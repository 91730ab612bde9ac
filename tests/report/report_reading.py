"""Reads back what was written: pages, as a parser of them would (render/markdown.py says how), and documents."""

from __future__ import annotations

import re

from flagperf.bundle.run_record import RecordedRun
from flagperf.messages import explain
from flagperf.report.document import Document, Empty, Facts, Notes, Table, TableCell, Value
from flagperf.report.screens import run_report

# --- pages ----------------------------------------------------------------------------------------------------------


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


# --- documents ------------------------------------------------------------------------------------------------------


def facts(run: RecordedRun) -> dict[str, tuple[str, str]]:
    """Label -> value and note of the card of a run."""
    return facts_of(run_report([run]))


def facts_of(document: Document) -> dict[str, tuple[str, str]]:
    (found,) = [block for block in document.blocks if isinstance(block, Facts)]
    return {fact.label: (_text(fact.cell), fact.note or _reason(fact.cell)) for fact in found.facts}


def table_rows(*runs: RecordedRun) -> list[dict[str, str]]:
    """Rows of the table of several runs by their heads."""
    table = next(block for block in run_report(runs).blocks if isinstance(block, Table))
    heads = [head.title for head in table.heads]
    return [dict(zip(heads, map(_text, row), strict=True)) for row in table.rows]


def table_of(document: Document, title: str) -> list[list[str]]:
    """Heads and rows of the table with this title."""
    (table,) = [block for block in document.blocks if isinstance(block, Table) and block.title.startswith(title)]
    return [[head.title for head in table.heads], *([_text(cell) for cell in row] for row in table.rows)]


def table_notes(*runs: RecordedRun) -> list[str]:
    notes = [block for block in run_report(runs).blocks if isinstance(block, Notes)]
    return [text for block in notes for group in block.groups for text in group.notes]


def _text(cell: TableCell) -> str:
    if isinstance(cell, Empty):
        return cell.reason
    return f"{cell.text} {cell.unit}" if isinstance(cell, Value) and cell.unit else cell.text


def _reason(cell: TableCell) -> str:
    return explain(cell.reason, "en", cell.detail) if isinstance(cell, Empty) else ""
