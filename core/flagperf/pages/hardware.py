"""Pages of the hardware itself: base pages (a value, its rated value, their ratio) and operator pages, with the power
that was read beside."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from flagperf.pages.quantities import Quantity, is_nothing, quantity, without_note
from flagperf.pages.source import PageFact, SourcePage, SourceTable
from flagperf.pages.words import folded, named, words

SUBJECTS = ("compute", "bandwidth", "capacity")
PRECISIONS = re.compile(r"(?<![a-z0-9])(fp64|fp32|tf32|fp16|bf16|fp8|int32|int16|int8)(?![0-9])", re.IGNORECASE)


class HardwareCell(msgspec.Struct, frozen=True):
    name: str
    """A key of [hardware] in words.toml."""
    head: str
    text: str
    line: int

    @property
    def is_empty(self) -> bool:
        return is_nothing(self.text)

    @property
    def quantity(self) -> Quantity | None:
        return None if self.is_empty else quantity(self.text)

    @property
    def said_cards(self) -> int | None:
        """`16` of `单卡平均功耗(16卡平均)`."""
        found = re.search(rf"\((\d{{1,5}}){words().shapes.card}", folded(self.head))
        return int(found[1]) if found else None


class HardwareRow(msgspec.Struct, frozen=True):
    line: int
    item: str
    """What the first cell calls it."""
    subject: str
    """A key of SUBJECTS, by the heads. Empty for links, operators and power."""
    cells: dict[str, HardwareCell]

    def amount(self, name: str) -> float | None:
        cell = self.cells.get(name)
        found = cell.quantity if cell is not None else None
        return found.amount if found is not None else None


class HardwarePage(msgspec.Struct, frozen=True):
    source: SourcePage
    rows: tuple[HardwareRow, ...]

    def fact(self, name: str) -> PageFact | None:
        return next(self.facts(name), None)

    def facts(self, name: str) -> Iterator[PageFact]:
        return (fact for fact in self.source.facts if named(fact.key, words().facts) == name)

    def count(self, name: str) -> int | None:
        """A number of servers or cards. Empty if the page gives several that differ."""
        found = {fact.value for fact in self.facts(name)}
        return int(found.pop()) if len(found) == 1 and next(iter(found)).isdigit() else None

    @property
    def precision(self) -> tuple[str, int] | None:
        """By the head of its result, with the line."""
        for row in self.rows:
            for cell in row.cells.values():
                found = PRECISIONS.search(cell.head)
                if found and cell.name == "value":
                    return found[1].lower(), cell.line
        return None

    @property
    def path_precision(self) -> str:
        """By the name of the file or its folders, which is where operator pages say it."""
        found = PRECISIONS.findall("/".join(self.source.path.split("/")[-6:]))
        return found[-1].lower() if found else ""


def hardware_page(page: SourcePage) -> HardwarePage | None:
    rows = [row for table in page.tables if _is_hardware(table) for row in _rows(table)]
    return HardwarePage(page, tuple(rows)) if rows else None


def _is_hardware(table: SourceTable) -> bool:
    return folded(table.heads[0]) in map(folded, words().hardware["item"])


def _rows(table: SourceTable) -> Iterator[HardwareRow]:
    names = [_name(head) for head in table.heads]
    heads = " ".join(table.heads)
    subject = next((key for key in SUBJECTS if any(word in heads for word in words().hardware[key])), "")
    for row in table.rows:
        if row.is_glued or len(row.cells) != len(names):
            continue
        cells = {
            name: HardwareCell(name, head, without_note(text)[0], row.line)
            for name, head, text in zip(names, table.heads, row.cells, strict=True)
            if name
        }
        yield HardwareRow(row.line, row.cells[0], subject, cells)


def _name(head: str) -> str:
    """Exactly, else by what it says before its brackets."""
    spellings = words().hardware
    exact = named(head, spellings)
    if exact:
        return exact
    bare = folded(head).partition("(")[0]
    for key in ("value", "rated"):
        if bare.endswith(tuple(map(folded, spellings[key]))):
            return key
    others = [key for key in spellings if key not in ("value", "rated", "item", *SUBJECTS)]
    return next((key for key in others if bare in map(folded, spellings[key])), "")
