"""Pages of training and inference: the general table, and the table with one row per configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf.metrics.registry import ENTRIES
from flagperf.pages.quantities import (
    Configuration,
    Quantity,
    configuration,
    is_nothing,
    memory,
    quantity,
    settings,
    without_note,
)
from flagperf.pages.source import SourcePage, SourceTable, TableRow
from flagperf.pages.words import folded, named, words
from flagperf.spec import Manifest

IDENTITY = (
    "configuration",
    "engine",
    "precision",
    "parallel",
    "fix_hp",
    "source",
    "config_file",
    "target",
    "resources",
)
"""Columns that say what was run; all others are results."""

_CONFIG_FILE = re.compile(r"config_(\w+?)x(\d{1,4})x(\d{1,4})")

TRUTHS = {"true": 1.0, "false": 0.0}


class ResultCell(msgspec.Struct, frozen=True):
    column: str
    text: str
    line: int
    is_noted: bool
    """It has a footnote, which gives the reason where there is no value."""

    @property
    def is_empty(self) -> bool:
        return is_nothing(self.text)

    @property
    def quantity(self) -> Quantity | None:
        """Of memory, the used one."""
        if self.column == "mem":
            found = memory(self.text)
            return found[0] if found else None
        if self.column == "loss_aligned" and self.text.lower() in TRUTHS:
            return Quantity(TRUTHS[self.text.lower()], "", 0)
        return quantity(self.text)


class ResultRow(msgspec.Struct, frozen=True):
    line: int
    cells: dict[str, ResultCell]
    configuration: Configuration | None

    def text(self, column: str) -> str:
        cell = self.cells.get(column)
        return "" if cell is None or cell.is_empty else cell.text

    def amount(self, column: str) -> float | None:
        cell = self.cells.get(column)
        found = cell.quantity if cell is not None else None
        return found.amount if found is not None else None

    @property
    def results(self) -> list[ResultCell]:
        return [cell for name, cell in self.cells.items() if name not in IDENTITY]

    @property
    def said_precision(self) -> str:
        """Of its column, else of the overrides. Empty if the row does not say."""
        keys = words().overrides["precision"]
        in_overrides = (value for key, value in settings(self.text("fix_hp")) if named(key, {"precision": keys}))
        return self.text("precision") or next(in_overrides, "")


class ResultTable(msgspec.Struct, frozen=True):
    line: int
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    """What the heads mean; empty for a head that is not known."""
    rows: tuple[ResultRow, ...]
    odd_rows: tuple[TableRow, ...]
    """Rows with other cells than the head, and sentences that are glued to the table."""


class GeneralEntry(msgspec.Struct, frozen=True):
    name: str
    value: str
    line: int

    @property
    def column(self) -> str:
        """The column that it points to, or empty if it has the value itself."""
        marks = words().general["see"]
        found = next((self.value.partition(mark)[0] for mark in marks if mark in self.value), "")
        return (found or (self.value if column_of(self.value) else "")).strip().lstrip("*")


class ResultPage(msgspec.Struct, frozen=True):
    source: SourcePage
    general: tuple[GeneralEntry, ...]
    table: ResultTable

    def says(self, pattern: str) -> bool:
        """Whether a line has a match of the regular expression."""
        return any(re.search(pattern, line) for line in self.source.lines)

    def stated(self, key: str) -> GeneralEntry | None:
        """An entry of the general table by its key in words.toml."""
        return next((entry for entry in self.general if named(entry.name, {key: words().general[key]})), None)


def result_page(page: SourcePage, manifest: Manifest | None = None) -> ResultPage | None:
    """None for a page without such a table. `manifest` adds the names of the case's own metrics."""
    table = next((table for table in page.tables if _is_results(table)), None)
    if table is None:
        return None
    return ResultPage(page, tuple(_general(page)), _result_table(table, _own(manifest)))


def column_of(head: str, own: Sequence[str] = ()) -> str:
    """The column that a head names: by words.toml, else a metric."""
    bare, _ = without_note(head)
    metrics = {name: (name, entry.head) for name, entry in ENTRIES.items()} | {name: (name,) for name in own}
    for text in (bare, bare.partition("(")[0]):
        found = named(text, words().columns) or named(text, metrics)
        if found:
            return found
    return ""


def _own(manifest: Manifest | None) -> Sequence[str]:
    if manifest is None:
        return ("acc", "acc(MMLU)", "loss")
    pages = manifest.published_pages
    return (*manifest.own_metrics, *(pages.columns if pages else ()), "acc")


def _is_results(table: SourceTable) -> bool:
    """A first column that names the configuration or the engine, and no sources: those are tables of references."""
    columns = [column_of(head) for head in table.heads]
    return columns[0] in ("configuration", "engine", "resources") and "source" not in columns


def _general(page: SourcePage) -> Iterator[GeneralEntry]:
    for table in page.tables:
        if len(table.heads) > 1 and folded(table.heads[0]) in map(folded, words().general["heads"]):
            yield from (GeneralEntry(row.cells[0], row.cells[1], row.line) for row in table.rows if len(row.cells) > 1)


def _result_table(table: SourceTable, own: Sequence[str]) -> ResultTable:
    columns = tuple(column_of(head, own) for head in table.heads)
    even = [row for row in table.rows if not row.is_glued and len(row.cells) == len(columns)]
    odd = tuple(row for row in table.rows if row.is_glued or len(row.cells) != len(columns))
    return ResultTable(table.line, table.heads, columns, tuple(_row(row, columns) for row in even), odd)


def _row(row: TableRow, columns: Sequence[str]) -> ResultRow:
    cells = {}
    for column, text in zip(columns, row.cells, strict=True):
        bare, is_noted = without_note(text)
        if column and column not in cells:
            cells[column] = ResultCell(column, bare, row.line, is_noted)
    return ResultRow(row.line, cells, _configuration(cells))


def _configuration(cells: Mapping[str, ResultCell]) -> Configuration | None:
    """Older pages say the words in one column, and device and shape by the name of a file: config_A100x2x8."""
    shape, words_alone, file = (cells.get(name) for name in ("configuration", "resources", "config_file"))
    if shape is not None:
        return configuration(shape.text)
    named_shape = _CONFIG_FILE.search(file.text) if file is not None else None
    if words_alone is None or named_shape is None:
        return None
    device, nodes, per_node = named_shape.groups()
    return configuration(f"{device}{words_alone.text}({nodes}x{per_node})")
