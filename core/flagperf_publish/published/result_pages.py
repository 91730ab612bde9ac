"""Pages of training and inference, cards, cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from flagperf.api import DeviceBackend
from flagperf.metrics.registry import ENTRIES
from flagperf.plan.settings import find_tuning
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten
from flagperf_publish.published.hardware_pages import HardwarePage
from flagperf_publish.published.page_cards import Card
from flagperf_publish.published.page_source import (
    Configuration,
    Quantity,
    SourcePage,
    SourceTable,
    TableRow,
    configuration,
    folded,
    is_nothing,
    memory,
    named,
    quantity,
    settings,
    without_note,
    words,
)

# Pages of training and inference: the general table, and the table with one row per configuration.


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


# Which case a page is of, and what its published configuration has.


LEAST = 5
"""Letters of a name that is looked for anywhere in a text."""


def case_of(page: ResultPage, manifests: Iterable[Manifest]) -> Manifest | None:
    """By the model that the general table names, else by a model that the text names. None if that is not one case."""
    readable = [manifest for manifest in manifests if manifest.published_pages is not None]
    stated = page.stated("model")
    if stated is not None:
        return _only([each for each in readable if _letters(stated.value) in _names(each)])
    text = _letters(" ".join(page.source.lines))
    return _only([each for each in readable if any(len(name) >= LEAST and name in text for name in _names(each))])


def hardware_case_of(page: HardwarePage) -> str:
    """The case whose figure a base page has. Empty for links and operators, whose conventions differ."""
    subjects = {row.subject for row in page.rows if "value" in row.cells}
    return next((item.case for item in words().imports if item.subject in subjects), "")


def mentions(page: SourcePage, name: str) -> int | None:
    """The first line with this word, without regard to case and punctuation."""
    wanted = _letters(name)
    lines = enumerate(page.lines, start=1)
    return next((number for number, line in lines if wanted and wanted in _letters(line)), None)


def published_values(manifest: Manifest, cards: Sequence[Card], nodes: int, devices: int) -> dict[str, object]:
    """The values of the published profile, with those of the vendor's tuning and of his published configuration."""
    profiles = (profile for profile in manifest.profiles.values() if profile.published)
    found = dict(flatten(manifest.values))
    for profile in profiles:
        found |= dict(flatten(profile.values))
    for card in cards:
        if card.known is not None:
            backend: DeviceBackend = card.known.given.checked(DeviceBackend)
            folder = backend.tuning_folder()
            tuning = find_tuning(folder, manifest.name, card.known.name, nodes, devices, "standard")
            found |= dict(flatten(tuning.values)) if tuning else {}
    pages = manifest.published_pages
    for known in pages.configurations if pages else ():
        is_here = (known.nodes, known.devices_per_node) == (nodes, devices)
        if is_here and any(known.device.lower() in card.spellings for card in cards):
            found |= known.values
    return found


def _names(manifest: Manifest) -> list[str]:
    pages = manifest.published_pages
    own = [manifest.name, manifest.model, *(pages.models if pages else ())]
    return [_letters(name) for name in own]


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _only(found: Sequence[Manifest]) -> Manifest | None:
    return found[0] if len(found) == 1 else None
