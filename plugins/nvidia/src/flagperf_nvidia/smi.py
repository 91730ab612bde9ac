"""What nvidia-smi prints.

parse_query_gpu      --query-gpu=... --format=csv, with or without its header and its units
parse_list           -L, with MIG slices
parse_compute_apps   --query-compute-apps=... --format=csv, with or without its header and its units
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from flagperf.api import FIGURES, ProcessReading, Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, Tool, cell_number, is_nothing, pci_address, read_cells, whole_lines

NVIDIA_SMI = Tool(("nvidia-smi",), ("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"))

# A driver that does not know one of the fields rejects the whole question: few, and old ones.
GPU_FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "driver_version",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "power.default_limit",
    "mig.mode.current",
)
APP_FIELDS = ("gpu_uuid", "pid", "used_gpu_memory")  # no process_name: it may hold commas, and nothing quotes them

QUERY_GPU = (f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv")
QUERY_COMPUTE_APPS = (f"--query-compute-apps={','.join(APP_FIELDS)}", "--format=csv")
LIST = ("-L",)

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CARD_UUID = f"GPU-{_UUID}"
_SLICE_UUID = f"MIG-(?:{_UUID}|{_CARD_UUID}/[0-9]+/[0-9]+)"  # drivers before 470 name card/instance/compute instance

_WORDS = {
    "index": "[0-9]+",
    "uuid": _CARD_UUID,
    "pci.bus_id": "[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\\.[0-7]",
    "name": ".+",
    "driver_version": "[0-9]+(?:\\.[0-9]+)+",
    "mig.mode.current": "Enabled|Disabled",
    "gpu_uuid": _CARD_UUID,
    "pid": "[0-9]+",
    "process_name": ".+",
}
"""The shape of a field that is no measurement."""

_UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "utilization.gpu": "%",
    "temperature.gpu": "",  # degrees Celsius, which neither header nor cells say
    "power.draw": "W",
    "power.limit": "W",
    "power.default_limit": "W",
    "used_gpu_memory": "MiB",
}
"""Measurements, with the unit that header and cells give."""

_LOST_CARD = re.compile(r"Unable to determine the device handle for GPU(?:[0-9]+:)? (\S+): .+")
_LISTED_CARD = re.compile(rf"GPU ([0-9]+): (.+) \(UUID: ({_CARD_UUID})\)")
_LISTED_SLICE = re.compile(rf"\s+MIG (\S+)\s+Device\s+([0-9]+): \(UUID: ({_SLICE_UUID})\)")


def parse_query_gpu(text: str) -> list[Reading]:
    """One reading per card, keyed by its UUID, and one without figures for every card that the driver has lost."""
    lost, table = _lost_cards(text)
    without_default_limit = tuple(field for field in GPU_FIELDS if field != "power.default_limit")
    rows = _rows(table, (GPU_FIELDS, without_default_limit))
    if not rows:
        raise UnknownLayout("nvidia-smi --query-gpu printed no card", text)
    for key in ("index", "uuid", "pci.bus_id"):
        _refuse_twice([row[key].text for row in rows if key in row and not is_nothing(row[key].text)], text)
    return [*lost, *(_reading(row, text) for row in rows)]


def parse_list(text: str) -> list[Reading]:
    """Cards and, after each, its slices: keyed by UUID, without figures. A slice names its card as `card`."""
    found: list[Reading] = []
    card: dict[str, str] = {}
    for line in text.splitlines():
        if whole := _LISTED_CARD.fullmatch(line):
            card = {"index": whole[1], "name": whole[2], "uuid": whole[3]}
            found.append(Reading(whole[3], properties=card))
        elif (part := _LISTED_SLICE.fullmatch(line)) and card:
            name = f"{card['name']} MIG {part[1]}"
            properties = {**card, "name": name, "uuid": part[3], "slice": f"MIG {part[1]}", "card": card["uuid"]}
            found.append(Reading(part[3], properties=properties))
        elif line.strip():
            raise UnknownLayout(f"nvidia-smi -L printed {line.strip()[:100]!r}", text)
    if not found:
        raise UnknownLayout("nvidia-smi -L printed no card", text)
    _refuse_twice([reading.device_id for reading in found], text)
    return found


def parse_compute_apps(text: str) -> list[ProcessReading]:
    """One per process and card. An idle machine prints the header alone."""
    rows = _rows(text, (APP_FIELDS, ("gpu_uuid", "pid", "process_name", "used_gpu_memory")))
    if any(is_nothing(row[key].text) for row in rows for key in ("gpu_uuid", "pid")):
        raise UnknownLayout("nvidia-smi --query-compute-apps printed a process without card or pid", text)
    return [_process(row["gpu_uuid"].text, int(row["pid"].text), row["used_gpu_memory"]) for row in rows]


def _process(card: str, pid: int, memory: Cell) -> ProcessReading:
    return ProcessReading(card, pid, read_cells(card, {"used_bytes": memory}).used_bytes)


# --- cards ----------------------------------------------------------------------------------------------------------

_FIELD_OF = {
    "used_bytes": "memory.used",
    "total_bytes": "memory.total",
    "utilisation_percent": "utilization.gpu",
    "power_watts": "power.draw",
    "temperature_celsius": "temperature.gpu",
}
_PROPERTIES = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "driver": "driver_version",
    "mig_mode": "mig.mode.current",
    "power_limit_watts": "power.limit",
    "power_default_limit_watts": "power.default_limit",
}


def _reading(row: Mapping[str, Cell], text: str) -> Reading:
    bare = {field: cell.text.removesuffix(cell.unit).strip() for field, cell in row.items()}
    said = {field: words for field, words in bare.items() if not is_nothing(words)}
    address = pci_address(said.get("pci.bus_id", ""))
    key = said.get("uuid") or address or said.get("index")
    if not key:
        raise UnknownLayout("nvidia-smi --query-gpu printed a card without UUID, PCI address and index", text)
    cells = {figure: row[field] for figure, field in _FIELD_OF.items() if field in row}
    no_column = {figure: f"no column {field}" for figure, field in _FIELD_OF.items() if field not in row}
    properties = {name: said[field] for name, field in _PROPERTIES.items() if field in said}
    reading = read_cells(key, cells, properties | ({"pci_address": address} if address else {}))
    return msgspec.structs.replace(reading, missing={**reading.missing, **no_column})


def _lost_cards(text: str) -> tuple[list[Reading], str]:
    """The lines before the table that tell of a card which the driver cannot reach, and the rest of the text."""
    lost: list[Reading] = []
    while text and (found := _LOST_CARD.fullmatch(text.partition("\n")[0].strip())):
        address = pci_address(found[1])
        if not address:
            raise UnknownLayout("nvidia-smi lost a card without saying which", text)
        lost.append(Reading(address, missing=dict.fromkeys(FIGURES, found[0])))
        text = text.partition("\n")[2]
    return lost, text


def _refuse_twice(keys: Sequence[str], text: str) -> None:
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise UnknownLayout(f"nvidia-smi printed {twice[0]} twice", text)


# --- tables ---------------------------------------------------------------------------------------------------------


def _rows(text: str, questions: Sequence[tuple[str, ...]]) -> list[dict[str, Cell]]:
    """Known field -> cell. Columns go by the header; without one, by the question that was asked and its shapes."""
    lines = [line for line in whole_lines(text) if line.strip()]
    columns = _header(lines[0], {field for fields in questions for field in fields}, text) if lines else []
    if columns:
        lines = lines[1:]
    else:
        columns = next((list(fields) for fields in questions if lines and len(_split(lines[0])) == len(fields)), [])
    if not columns:
        raise UnknownLayout("neither a header of nvidia-smi's csv nor a row of it", text)
    rows = [dict(zip(columns, _cells(line, columns, text), strict=True)) for line in lines]
    measured = [row[field] for row in rows for field in row if _UNITS.get(field) and not is_nothing(row[field])]
    has_units = any(" " in cell for cell in measured)
    return [
        {field: _cell(field, cell, has_units, text) for field, cell in row.items() if field in _WORDS | _UNITS}
        for row in rows
    ]


def _header(line: str, known: Collection[str], text: str) -> list[str]:
    """The fields of a header, units checked; [] where the line is none. Columns that are not known may stand in it."""
    fields = []
    for title in _split(line):
        name, _, unit = title.partition(" [")
        if name in _UNITS and unit != (f"{_UNITS[name]}]" if _UNITS[name] else ""):
            raise UnknownLayout(f"nvidia-smi's csv has {title!r}, not {name} in {_UNITS[name] or 'no unit'}", text)
        fields.append(name)
    found = [field for field in fields if field in known]
    if len(set(found)) != len(found):
        raise UnknownLayout("nvidia-smi's csv has a column twice", text)
    if found and not _is_enough(found):
        raise UnknownLayout(f"nvidia-smi's csv has only the columns {', '.join(found)}", text)
    return fields if found else []


def _is_enough(fields: Sequence[str]) -> bool:
    """Whose memory, and how much."""
    of_cards = "memory.used" in fields and {"uuid", "pci.bus_id", "index"} & set(fields)
    return bool(of_cards) or {"gpu_uuid", "pid", "used_gpu_memory"} <= set(fields)


def _cells(line: str, columns: Sequence[str], text: str) -> list[str]:
    cells = _split(line)
    if "process_name" in columns and len(cells) > len(columns):
        at, surplus = columns.index("process_name"), len(cells) - len(columns)
        cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
    if len(cells) != len(columns):
        raise UnknownLayout(f"a row of nvidia-smi's csv has {len(cells)} cells, not {len(columns)}", text)
    return cells


def _cell(field: str, cell: str, has_units: bool, text: str) -> Cell:
    """Checked here, so that one odd cell refuses the whole output."""
    if field in _WORDS:
        if not is_nothing(cell) and not re.fullmatch(_WORDS[field], cell):
            raise UnknownLayout(f"nvidia-smi's csv has {cell!r} as {field}", text)
        return Cell(cell)
    unit = _UNITS[field] if has_units else ""
    number = cell_number(cell, unit)
    if number is not None and _UNITS[field] == "MiB" and number != int(number):
        raise UnknownLayout(f"nvidia-smi's csv has {cell!r} as {field}", text)
    return Cell(cell, unit, 1 << 20 if _UNITS[field] == "MiB" else 1)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]
