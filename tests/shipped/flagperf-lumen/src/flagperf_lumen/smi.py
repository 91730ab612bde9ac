"""lumen-smi, and how its output is read: parse_query. Yours: the tool's name, its folders, its columns and units."""

from __future__ import annotations

import csv

from flagperf.api import Cell, Reading, Tool, read_cells, whole_lines
from flagperf.errors import UnknownLayout

TOOL = Tool(("lumen-smi",), ("/opt/lumen/bin",))
HEADER = ["index", "uuid", "pci", "name", "memory.total [MiB]", "memory.used [MiB]", "power [W]", "temperature [C]"]
QUERY = ("--query=index,uuid,pci,name,memory.total,memory.used,power,temperature", "--format=csv")


def parse_query(text: str) -> list[Reading]:
    """A header with units, then a line per card."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(whole_lines(text))]
    if len(rows) < 2 or rows[0] != HEADER:
        raise UnknownLayout("lumen-smi --query: the header is not the known one", text)
    if any(len(row) != len(HEADER) for row in rows):
        raise UnknownLayout("lumen-smi --query: a line has another number of cells", text)
    return [_reading(dict(zip(HEADER, row, strict=True))) for row in rows[1:]]


def _reading(cells: dict[str, str]) -> Reading:
    """Keyed by UUID. A cell that says N/A, -1 or the like is missing with its words, never 0."""
    figures = {
        "used_bytes": Cell(cells["memory.used [MiB]"], scale=1 << 20),
        "total_bytes": Cell(cells["memory.total [MiB]"], scale=1 << 20),
        "power_watts": Cell(cells["power [W]"]),
        "temperature_celsius": Cell(cells["temperature [C]"]),
    }
    return read_cells(cells["uuid"], figures, {name: cells[name] for name in HEADER[:4]})
