"""Cells of what a tool prints: a number with its unit, or a word that says that there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from flagperf.api.memory import Reading
from flagperf.errors import UnknownLayout

_NOTHING = re.compile(r"|-|-1(\.0+)?|n/?a|none|unknown|\[.*\]", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_GROUPED = re.compile(r"[0-9]{1,3}\.[0-9]{3}")
_MIB = 1 << 20


class Cell(msgspec.Struct, frozen=True):
    """A figure as printed. `unit` is what the text must end in; "" where the header or the label says it.

    Memory in MiB or less that reads `98.304` is refused: the point may be a fraction's, or group the digits of a number
    that is a thousand times larger. `1024.00` is read."""

    text: str
    """As printed, with its unit or without."""
    unit: str = ""
    """What the text must end in, such as `MiB`."""
    scale: float = 1
    """To bytes, percent, watts or degrees."""


def read_cells(key: str, cells: Mapping[str, Cell], properties: Mapping[str, str] | None = None) -> Reading:
    """One card's reading from cells by figure. A cell that says nothing is missing, with its own words as reason; a
    property that says nothing is left out: `N/A` is no name, and no two cards' id."""
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for figure, cell in cells.items():
        number = cell_number(cell.text, cell.unit)
        if number is None:
            missing[figure] = f"the tool says {cell.text.strip()!r}"
        elif figure.endswith("_bytes"):
            values[figure] = _whole_bytes(number, cell)
        else:
            values[figure] = number * cell.scale
    if values.get("total_bytes") == 0:  # so tools say it of a memory that they cannot see: one shared with the host
        unseen = [figure for figure in ("used_bytes", "total_bytes") if values.pop(figure, None) is not None]
        missing |= dict.fromkeys(unseen, "the tool says a total of 0")
    said = {name: text for name, text in (properties or {}).items() if not is_nothing(text)}
    return Reading(key, **values, missing=missing, properties=said)


def _whole_bytes(number: float, cell: Cell) -> int:
    if cell.scale <= _MIB and _GROUPED.fullmatch(cell.text.strip().removesuffix(cell.unit).strip()):
        raise UnknownLayout("memory whose point may group its digits", cell.text, cell.text)
    return round(number * cell.scale)


def cell_number(text: str, unit: str = "") -> float | None:
    """None where the cell says that there is none; UnknownLayout where it is neither that nor a number in `unit`."""
    if is_nothing(text):
        return None
    if not text.strip().endswith(unit):
        raise UnknownLayout(f"a cell that should be in {unit}", text, text)
    bare = text.strip().removesuffix(unit).strip()
    if is_nothing(bare):
        return None
    if not _NUMBER.fullmatch(bare):
        raise UnknownLayout("a cell that should be a number", text, text)
    return float(bare)


def whole_lines(text: str) -> list[str]:
    """The lines of an output that ends with a newline: a truncated last line may hold half a number."""
    if not text.endswith("\n"):
        raise UnknownLayout("an output that ends within a line", text, "".join(text.splitlines()[-1:]))
    return text.splitlines()


def is_nothing(text: str) -> bool:
    """Whether a cell says that there is no value (N/A, -1, `[Not Supported]`, nothing at all): missing, never 0."""
    return bool(_NOTHING.fullmatch(text.strip()))
