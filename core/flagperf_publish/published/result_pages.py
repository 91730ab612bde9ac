"""Pages of training and inference, whose cards they are about, and which case they are of.

All names of cards, vendors and models come from installed adapters and from published results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from flagperf.api import DeviceBackend
from flagperf.metrics.registry import ENTRIES
from flagperf.plan.card_models import KnownModel, known_models
from flagperf.plan.settings import find_tuning
from flagperf.plugins.installed import Plugins
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten
from flagperf.units import GIB
from flagperf_publish.published.page_source import (
    Configuration,
    Quantity,
    SourcePage,
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

_SIZE = re.compile(r"-(\d+)GB$", re.IGNORECASE)
_SIZE_IN_TEXT = re.compile(r"(?<![\d.])(\d{2,4})\s*G(?:i?B)?(?![a-zA-Z0-9])", re.IGNORECASE)
_CONFIG_FILE = re.compile(r"config_(\w+?)x(\d{1,4})x(\d{1,4})")

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

TRUTHS = {"true": 1.0, "false": 0.0}


class PageCard(msgspec.Struct, frozen=True):
    vendor: str
    name: str
    """As the adapter or a published result calls it."""
    short_name: str
    memory_gib: float | None = None
    peaks: dict[str, float] = {}
    """Row -> value, those of low confidence left out."""
    known: KnownModel | None = None
    """None for a card that only published results name."""

    @property
    def spellings(self) -> set[str]:
        names = {self.name, self.short_name, _SIZE.sub("", self.name)}
        return {name.lower() for name in names if len(name) > 2}


class Cards(msgspec.Struct, frozen=True):
    cards: tuple[PageCard, ...]
    vendor_words: dict[str, str]
    """Word in lower case -> vendor."""

    def vendors_in(self, text: str) -> list[str]:
        """Return the vendors that a text names, in its order."""
        found = [(match.start(), vendor) for word, vendor in self.vendor_words.items() for match in _finds(word, text)]
        return list(dict.fromkeys(vendor for _, vendor in sorted(found)))

    def cards_in(self, text: str) -> list[PageCard]:
        """Return all cards that the names in a text may mean.

        Of names inside each other (K1, K1-X), the longer one counts. A size of memory in the text tells equal names
        apart.
        """
        taken: list[tuple[int, int]] = []
        found: dict[str, PageCard] = {}
        spelled = {spelling for card in self.cards for spelling in card.spellings}
        for spelling in sorted(spelled, key=len, reverse=True):
            for match in _finds(spelling, text):
                if all(match.end() <= begin or match.start() >= end for begin, end in taken):
                    taken.append(match.span())
                    found |= {card.name: card for card in self.cards if spelling in card.spellings}
        sizes = {float(size) for size in _SIZE_IN_TEXT.findall(text)}
        return [card for card in found.values() if card.memory_gib in sizes] or list(found.values())

    def cards_of(self, page: SourcePage) -> list[PageCard]:
        """Return the cards that all lines about the accelerator may mean, or all cards if these contradict."""
        by_line = [found for _, text in device_lines(page) if (found := self.cards_in(text))]
        cards = {card.name: card for found in by_line for card in found}
        return [card for card in cards.values() if all(card in found for found in by_line)] or list(cards.values())


def _finds(word: str, text: str) -> Iterator[re.Match[str]]:
    before, after = ("(?<![a-z0-9])", "(?![a-z0-9])") if word.isascii() else ("", "")
    return re.finditer(before + re.escape(word.lower()) + after, text.lower())


def device_lines(page: SourcePage) -> list[tuple[int, str]]:
    """Return number and value of the bullets that name the accelerator."""
    return [(fact.line, fact.value) for fact in page.facts if named(fact.key, words().facts) in ("device", "product")]


def installed_cards(plugins: Plugins) -> Cards:
    """Return the cards that adapters know, and those that only published results of the cases name."""
    references = [each for case in plugins.complete_cases().values() for each in case.manifest.references]
    cards = []
    for model in known_models(plugins, None)[0]:
        if not model.given.value.is_fallback:
            size, _ = model.memory_bytes(references)
            gib = None if size is None else size / GIB
            peaks = {peak.row: peak.value for peak in model.peaks if peak.confidence != "low" and peak.value > 0}
            cards.append(PageCard(model.vendor, model.name, model.other_name or model.name, gib, peaks, model))

    spellings = {(card.vendor, spelling) for card in cards for spelling in card.spellings}
    only_published: dict[tuple[str, str], PageCard] = {}
    for each in references:
        name, size_in_name = _SIZE.sub("", each.device), _SIZE.search(each.device)
        is_known = {(each.vendor, each.device.lower()), (each.vendor, name.lower())} & spellings
        if not is_known and " and " not in each.device:
            gib = float(size_in_name[1]) if size_in_name else None
            only_published[each.vendor, each.device] = PageCard(each.vendor, each.device, name, gib)

    vendor_words = {each.vendor.lower(): each.vendor for each in references}
    for given in plugins.device_backends():
        backend = given.value
        titles: Mapping[str, str] = backend.title
        if not backend.is_fallback:
            vendor_words |= {
                word.lower(): backend.vendor for word in (backend.vendor, *backend.aliases, *titles.values())
            }
    return Cards((*cards, *only_published.values()), vendor_words)


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
        """The value of the cell; of memory, the used one."""
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
        """The precision in its column, else in the overrides. Empty if the row does not say it."""
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
    """One row of the general table, which lists what the table of results has."""

    name: str
    value: str
    line: int

    @property
    def column(self) -> str:
        """The column that the entry points to. Empty if it has the value itself."""
        marks = words().general["see"]
        found = next((self.value.partition(mark)[0] for mark in marks if mark in self.value), "")
        return (found or (self.value if column_of(self.value) else "")).strip().lstrip("*")


class ResultPage(msgspec.Struct, frozen=True):
    source: SourcePage
    general: tuple[GeneralEntry, ...]
    table: ResultTable

    def says(self, pattern: str) -> bool:
        """Return whether a line matches the regular expression."""
        return any(re.search(pattern, line) for line in self.source.lines)

    def stated(self, key: str) -> GeneralEntry | None:
        """Return an entry of the general table by its key in words.toml."""
        return next((entry for entry in self.general if named(entry.name, {key: words().general[key]})), None)


def column_of(head: str, own: Sequence[str] = ()) -> str:
    """Return the column that a head names, by words.toml or as a metric. `own` are metrics of the case."""
    bare, _ = without_note(head)
    metrics = {name: (name, entry.head) for name, entry in ENTRIES.items()} | {name: (name,) for name in own}
    for text in (bare, bare.partition("(")[0]):
        found = named(text, words().columns) or named(text, metrics)
        if found:
            return found
    return ""


def result_page(page: SourcePage, manifest: Manifest | None = None) -> ResultPage | None:
    """Read the general table and the table with one row per configuration.

    Return None for a page without the second: its first column names the configuration or the engine. `manifest` adds
    the names of the case's own metrics.
    """
    own: tuple[str, ...] = ("acc", "acc(MMLU)", "loss")
    if manifest is not None:
        pages = manifest.published_pages
        own = (*manifest.own_metrics, *(pages.columns if pages else ()), "acc")
    for table in page.tables:
        known = [column_of(head) for head in table.heads]
        # a table with sources lists references
        if known[0] in ("configuration", "engine", "resources") and "source" not in known:
            break
    else:
        return None
    columns = tuple(column_of(head, own) for head in table.heads)
    rows, odd = [], []
    for row in table.rows:
        if row.is_glued or len(row.cells) != len(columns):
            odd.append(row)
            continue
        cells: dict[str, ResultCell] = {}
        for column, text in zip(columns, row.cells, strict=True):
            if column and column not in cells:
                bare, is_noted = without_note(text)
                cells[column] = ResultCell(column, bare, row.line, is_noted)
        rows.append(ResultRow(row.line, cells, _configuration(cells)))
    general = [
        GeneralEntry(row.cells[0], row.cells[1], row.line)
        for each in page.tables
        if len(each.heads) > 1 and folded(each.heads[0]) in map(folded, words().general["heads"])
        for row in each.rows
        if len(row.cells) > 1
    ]
    return ResultPage(page, tuple(general), ResultTable(table.line, table.heads, columns, tuple(rows), tuple(odd)))


def _configuration(cells: Mapping[str, ResultCell]) -> Configuration | None:
    """Read the configuration of a row.

    Older pages have only its words in a column, and say device and shape in the name of a file: config_A100x2x8.
    """
    shape, words_alone, file = (cells.get(name) for name in ("configuration", "resources", "config_file"))
    if shape is not None:
        return configuration(shape.text)
    named_shape = _CONFIG_FILE.search(file.text) if file is not None else None
    if words_alone is None or named_shape is None:
        return None
    device, nodes, per_node = named_shape.groups()
    return configuration(f"{device}{words_alone.text}({nodes}x{per_node})")


LEAST = 5
"""Letters of a name that is looked for anywhere in a text."""


def case_of(page: ResultPage, manifests: Iterable[Manifest]) -> Manifest | None:
    """Return the case of a page, by the model that the general table names, else by a model that the text names.

    Return None if that is not exactly one case.
    """
    stated = page.stated("model")
    text = letters(stated.value if stated is not None else " ".join(page.source.lines))
    found = []
    for manifest in manifests:
        if manifest.published_pages is not None:
            names = map(letters, (manifest.name, manifest.model, *manifest.published_pages.models))
            if any(name == text if stated is not None else len(name) >= LEAST and name in text for name in names):
                found.append(manifest)
    return found[0] if len(found) == 1 else None


def letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return re.sub(r"[\W_]+", "", text).lower()


def published_values(manifest: Manifest, cards: Sequence[PageCard], nodes: int, devices: int) -> dict[str, object]:
    """Return the values of the published profile, with those of the vendor's tuning and published configuration."""
    found = dict(flatten(manifest.values))
    for profile in manifest.profiles.values():
        if profile.published:
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
