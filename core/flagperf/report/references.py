"""Published results of a case, to stand below a run's own: the same columns, and where each was published."""

from __future__ import annotations

from collections.abc import Callable

from flagperf.report.cells import Cell
from flagperf.report.columns import Column
from flagperf.report.table import Table
from flagperf.report.texts import Lang, label, say
from flagperf.spec import Reference


def reference_table(
    found: tuple[Reference, ...], columns: tuple[Column, ...], lang: Lang, show: Callable[[Cell], str]
) -> Table:
    """`show` turns a cell into the text of the medium. The last column says that a row is published, and where."""
    head = (*(column.title(lang) for column in columns), label("source", lang))
    return Table(tuple(show(Cell(title)) for title in head), tuple(_row(each, columns, lang, show) for each in found))


def _row(reference: Reference, columns: tuple[Column, ...], lang: Lang, show: Callable[[Cell], str]) -> tuple[str, ...]:
    source = Cell(say("published_source", lang, source=reference.source))
    return tuple(show(cell) for cell in (*(column.of_reference(reference, lang) for column in columns), source))
