"""Reads documents of the terminal back."""

from __future__ import annotations

from flagperf.bundle.run_record import RecordedRun
from flagperf.messages import explain
from flagperf.report.document import Document, Empty, Facts, Notes, Table, TableCell, Value
from flagperf.report.screens import run_report


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
