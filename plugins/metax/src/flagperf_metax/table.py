"""mx-smi without arguments: boxes of title lines, header lines, and rows of as many lines as the header has.

Every release changes these boxes. Cells are read by the names above them, so that a new name is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, pci_address
from flagperf_metax.layouts import (
    ADDRESS,
    CARD_NAME,
    MIB,
    announced_cards,
    card_reading,
    distinct,
    identity,
    slice_key,
    slice_words,
)

_NONE = r"\[?N/?A\]?"
_MEMORY = rf"(?P<memory>[0-9]{{1,9}}/[0-9]{{1,9}} MiB|{_NONE})"
_UTILISATION = rf"(?P<utilisation>[0-9]{{1,9}}%|{_NONE})"
_POWER = rf"(?P<power>[0-9]{{1,9}}W|{_NONE})(?: / (?P<limit>[0-9]{{1,9}}W|{_NONE}))?"
_BUS = rf"(?P<address>{ADDRESS})"
_COLUMNS = {
    "gpu": r"(?P<index>[0-9]{1,9})",
    "board": r"[0-9]{1,9}",
    "name": rf"(?P<name>{CARD_NAME})",
    "bus-id": _BUS,
    "bus-i": _BUS,
    "persistence-m": r"\S+",
    "persist-m": r"\S+",
    "perf": r"\S+",
    "sgpu-m": r"\S+",
    "gpu-state": r"(?P<state>\S.*)",
    "temp": rf"(?P<temperature>[0-9]{{1,9}}C|{_NONE})",
    "power": _POWER,
    "pwr:usage/cap": _POWER,
    "memory-usage": _MEMORY,
    "gpu-util": _UTILISATION,
    "sgpu-util": _UTILISATION,
    "vram quota": _MEMORY,
    "minor": r"[0-9]{1,9}",
    "sgpu-id": r"(?P<sgpu>[0-9]{1,9})",
    "compute": r"(?P<compute>[0-9]{1,9})%",
}
"""What stands below a header, by the header's own words."""


def parse_table(text: str) -> list[Reading]:
    """Memory in whole MiB. The cards' box comes first; the boxes of slices and processes may be missing."""
    outside, boxes = read_boxes(text)
    titles = [box.titles[0] if box.titles else "" for box in boxes]
    if not boxes or not titles[0].startswith("MX-SMI ") or not boxes[0].header:
        raise UnknownLayout("mx-smi: no table of cards", text)
    cards = [_table_card(cells, boxes[0], text) for cells in _table_rows(boxes[0], text)]
    _check_outside([line for line in outside if line != "End of Log"], len(cards), text)
    addresses = {card.properties["index"]: card.device_id for card in distinct(cards, text)}
    slices: list[Reading] = []
    for title, box in zip(titles[1:], boxes[1:], strict=True):
        if title == "Sliced GPU":
            slices = [_table_slice(cells, addresses, text) for cells in _table_rows(box, text)]
        elif not title.startswith("Process"):
            raise UnknownLayout("mx-smi: a table of no known kind", text, title)
    return distinct([*cards, *slices], text)


def _check_outside(lines: Sequence[str], num_cards: int, text: str) -> None:
    """Releases before 2.2 print the table alone."""
    announced = announced_cards(lines, text) if lines else None
    if announced not in (None, num_cards):
        raise UnknownLayout(f"mx-smi announces {announced} cards and lists {num_cards}", text)


def _table_rows(box: Box, text: str) -> list[dict[str, str]]:
    if not box.header:
        raise UnknownLayout("mx-smi: a table without a header", text, "".join(box.titles[:1]))
    shapes = [[_cell_shape(cell, text) for cell in line] for line in box.header]
    return [_table_cells(row, shapes, text) for row in box.rows]


def _cell_shape(header: str, text: str) -> re.Pattern[str]:
    """The shape of the cells below one cell of the header, which may hold several names."""
    shapes, rest = [], header.lower()
    while rest:
        name = next((name for name in _COLUMNS if re.match(rf"{re.escape(name)}(\s|$)", rest)), None)
        if name is None:
            raise UnknownLayout("mx-smi: a header of no known kind", text, header)
        shapes.append(_COLUMNS[name])
        rest = rest[len(name) :].strip()
    return re.compile(r"\s+".join(shapes))


def _table_cells(
    row: Sequence[Sequence[str]], shapes: Sequence[Sequence[re.Pattern[str]]], text: str
) -> dict[str, str]:
    found: dict[str, str] = {}
    for cells, line_shapes in zip(row, shapes, strict=True):
        if len(cells) != len(line_shapes):
            raise UnknownLayout(
                f"mx-smi: a row has {len(cells)} cells and its header {len(line_shapes)}", text, " | ".join(cells)
            )
        for cell, shape in zip(cells, line_shapes, strict=True):
            matched = shape.fullmatch(cell)
            if matched is None:
                raise UnknownLayout("mx-smi: a cell is not what its header says", text, " | ".join(cells))
            found |= {name: value for name, value in matched.groupdict().items() if value is not None}
    return found


def _table_card(cells: Mapping[str, str], box: Box, text: str) -> Reading:
    if not {"index", "address", "memory", "name"} <= cells.keys():
        raise UnknownLayout("mx-smi: the table of cards lacks a column for index, name, bus or memory", text)
    figures = {
        **_table_figures(cells),
        "power_watts": Cell(cells.get("power", ""), "W"),
        "temperature_celsius": Cell(cells.get("temperature", ""), "C"),
    }
    state = cells.get("state", "Available")
    address = pci_address(cells["address"])
    properties = {
        **identity(cells["index"], cells["name"], address),
        **_table_versions(box),
        "power_limit_watts": cells.get("limit", "").removesuffix("W"),
        "problem": "" if state == "Available" else state,
    }
    return card_reading(address, figures, properties)


def _table_figures(cells: Mapping[str, str]) -> dict[str, Cell]:
    """`used/total MiB`, or one word for both."""
    memory = cells["memory"]
    used, total = memory.removesuffix(" MiB").split("/") if memory.endswith(" MiB") else (memory, memory)
    return {
        "used_bytes": Cell(used, "", MIB),
        "total_bytes": Cell(total, "", MIB),
        "utilisation_percent": Cell(cells.get("utilisation", ""), "%"),
    }


def _table_slice(cells: Mapping[str, str], addresses: Mapping[str, str], text: str) -> Reading:
    if not {"index", "sgpu", "memory"} <= cells.keys() or cells["index"] not in addresses:
        raise UnknownLayout("mx-smi: a slice without a known card, number or memory", text)
    address = addresses[cells["index"]]
    words = slice_words(cells["sgpu"], cells.get("compute", "?"), cells["memory"].partition("/")[2])
    properties = {"pci_address": address, "slice": words}
    return card_reading(slice_key(address, cells["sgpu"]), _table_figures(cells), properties)


def _table_versions(box: Box) -> dict[str, str]:
    names = {
        "mx_smi": "MX-SMI",
        "driver": "Kernel Mode Driver Version:",
        "maca": "MACA Version:",
        "bios": "BIOS Version:",
    }
    title = "  ".join(box.titles)
    found = {name: re.search(rf"{re.escape(words)} +(\S+)", title) for name, words in names.items()}
    return {name: match[1] for name, match in found.items() if match}


# --- boxes -----------------------------------------------------------------------------------------------------------


class Box(msgspec.Struct):
    titles: list[str]
    header: list[list[str]]
    rows: list[list[list[str]]]
    """Row, line of the row, cell."""


def read_boxes(text: str) -> tuple[list[str], list[Box]]:
    """The lines outside of boxes, and the boxes."""
    outside: list[str] = []
    groups: list[list[str]] = []
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith(("+", "|")):
            groups += [] if inside else [[]]
            groups[-1].append(line)
        elif line:
            outside.append(line)
        inside = line.startswith(("+", "|"))
    return outside, [_read_box(group, text) for group in groups]


def _read_box(lines: Sequence[str], text: str) -> Box:
    parts: dict[str, list[list[str]]] = {"titles": [], "header": [], "rows": []}
    part, after_rule = "titles", True
    for line in lines[1:]:
        after_rule = bool(re.fullmatch(r"[|+][-=][-=+]*[|+]", line))
        if after_rule and part == "rows" and len(parts["rows"]) % max(1, len(parts["header"])):
            raise UnknownLayout("mx-smi: a row of a table is not whole", text, " | ".join(parts["rows"][-1]))
        if after_rule:
            part = "rows" if "=" in line or part == "rows" else "header"
        elif line.startswith("|") and line.endswith("|"):
            parts[part].append([cell.strip() for cell in line[1:-1].split("|")])
        else:
            raise UnknownLayout("mx-smi: a line of a table is not whole", text, line)
    height = max(1, len(parts["header"]))
    if not after_rule or part != "rows" or len(parts["rows"]) % height:
        raise UnknownLayout("mx-smi: a table is not whole", text)
    rows = [parts["rows"][start : start + height] for start in range(0, len(parts["rows"]), height)]
    return Box([cells[0] for cells in parts["titles"]], parts["header"], rows)
