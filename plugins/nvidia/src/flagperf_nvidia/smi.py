"""What nvidia-smi prints.

parse_query_gpu      --query-gpu=... --format=csv, with or without its header and its units
parse_list           -L, with MIG slices
parse_compute_apps   --query-compute-apps=... --format=csv, with or without its header and its units
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from flagperf.api import FIGURES, ProcessReading, Reading, Tool, pci_address
from flagperf.errors import UnknownLayout

NVIDIA_SMI = Tool(("nvidia-smi",), ("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"))

# A driver that does not know one of the fields rejects the whole question: few, and old ones.
GPU_FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu",
    "temperature.gpu", "power.draw", "power.limit", "power.default_limit", "mig.mode.current",
)  # fmt: skip
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")

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

_NO_VALUE = re.compile(r"\[.*\]|N/A|NA|unknown|-1(\.0+)?( \S+)?|", re.IGNORECASE)
_MEASUREMENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?: (\S+))?")
_ENDED = re.compile(rf"\[.*\]|N/A|Enabled|Disabled|{_CARD_UUID}")
"""Cells that show by themselves that nothing was cut off their end."""

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
        _refuse_twice([row[key].value for row in rows if key in row and row[key].value], text)
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
    rows = _rows(text, (APP_FIELDS,))
    if any(not row[key].value for row in rows for key in ("gpu_uuid", "pid")):
        raise UnknownLayout("nvidia-smi --query-compute-apps printed a process without card or pid", text)
    return [
        ProcessReading(row["gpu_uuid"].value, int(row["pid"].value), row["used_gpu_memory"].mebibytes) for row in rows
    ]


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


class _Cell(msgspec.Struct, frozen=True):
    value: str
    """Without its unit; "" where there is no value."""
    reason: str = ""
    """Why there is none."""
    has_unit: bool | None = None
    """None: a cell of which that cannot be asked."""

    @property
    def number(self) -> float | None:
        return float(self.value) if self.value else None

    @property
    def mebibytes(self) -> int | None:
        """In bytes."""
        return int(self.value) << 20 if self.value else None


def _reading(row: Mapping[str, _Cell], text: str) -> Reading:
    values = {field: cell.value for field, cell in row.items() if cell.value}
    address = pci_address(values.get("pci.bus_id", ""))
    key = values.get("uuid") or address or values.get("index")
    if not key:
        raise UnknownLayout("nvidia-smi --query-gpu printed a card without UUID, PCI address and index", text)
    cells = {figure: row.get(field, _Cell("", f"no column {field}")) for figure, field in _FIELD_OF.items()}
    properties = {name: values[field] for name, field in _PROPERTIES.items() if field in values}
    return Reading(
        key, used_bytes=cells["used_bytes"].mebibytes, total_bytes=cells["total_bytes"].mebibytes,
        utilisation_percent=cells["utilisation_percent"].number, power_watts=cells["power_watts"].number,
        temperature_celsius=cells["temperature_celsius"].number,
        missing={figure: cell.reason for figure, cell in cells.items() if not cell.value},
        properties=properties | ({"pci_address": address} if address else {}),
    )  # fmt: skip


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


def _rows(text: str, questions: Sequence[tuple[str, ...]]) -> list[dict[str, _Cell]]:
    """Known field -> cell. Columns go by the header; without one, by the question that was asked and its shapes."""
    lines = [line for line in text.splitlines() if line.strip()]
    columns = _header(lines[0], questions[0], text) if lines else []
    if columns:
        lines = lines[1:]
    else:
        columns = next((list(fields) for fields in questions if lines and len(_split(lines[0])) == len(fields)), [])
    if not columns:
        raise UnknownLayout("neither a header of nvidia-smi's csv nor a row of it", text)
    if lines and not text.endswith("\n") and not _is_ended(columns[-1], _split(lines[-1])[-1]):
        raise UnknownLayout("the last row of nvidia-smi's csv may have been cut off", text)
    rows = [_row(line, columns, text) for line in lines]
    if len({cell.has_unit for row in rows for cell in row.values()} - {None}) > 1:
        raise UnknownLayout("nvidia-smi's csv has cells with a unit and cells without", text)
    return rows


def _header(line: str, known: Sequence[str], text: str) -> list[str]:
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


def _row(line: str, columns: Sequence[str], text: str) -> dict[str, _Cell]:
    cells = _split(line)
    if len(cells) != len(columns):
        raise UnknownLayout(f"a row of nvidia-smi's csv has {len(cells)} cells, not {len(columns)}", text)
    known = [(field, cell) for field, cell in zip(columns, cells, strict=True) if field in _WORDS or field in _UNITS]
    return {field: _cell(field, cell, text) for field, cell in known}


def _cell(field: str, cell: str, text: str) -> _Cell:
    if _NO_VALUE.fullmatch(cell):
        return _Cell("", f"nvidia-smi says {cell}" if cell else "nvidia-smi says nothing")
    if field in _WORDS and re.fullmatch(_WORDS[field], cell):
        return _Cell(cell)
    measured = _MEASUREMENT.fullmatch(cell) if field in _UNITS else None
    if measured is None or measured[2] not in (None, _UNITS[field]) or (_UNITS[field] == "MiB" and "." in measured[1]):
        raise UnknownLayout(f"nvidia-smi's csv has {cell!r} as {field}", text)
    return _Cell(measured[1], has_unit=measured[2] is not None if _UNITS[field] else None)


def _is_ended(field: str, cell: str) -> bool:
    unit = _UNITS.get(field)
    return bool(_ENDED.fullmatch(cell)) or bool(unit and cell.endswith(f" {unit}"))


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]
