"""What nvidia-smi prints.

parse_query_gpu      --query-gpu=... --format=csv, with or without its header and its units
parse_list           -L, with MIG slices
parse_lost           lines of either, or of stderr, that name a lost card
parse_health         --query-remapped-rows=..., --query-gpu=uuid,retired_pages.pending, both with --format=csv
parse_compute_apps   --query-compute-apps=... --format=csv, with or without its header and its units
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from flagperf.api import FIGURES, ProcessReading, Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, Query, Tool, cell_number, is_nothing, pci_address, read_cells, whole_lines
from flagperf_nvidia.health import PAGES_WAIT, row_problem

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

ROW_FIELDS = ("gpu_uuid", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure")
PAGE_FIELDS = ("uuid", "retired_pages.pending")

QUERY_GPU = (f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv")
QUERY_COMPUTE_APPS = (f"--query-compute-apps={','.join(APP_FIELDS)}", "--format=csv")
QUERY_ROWS = (f"--query-remapped-rows={','.join(ROW_FIELDS)}", "--format=csv")
QUERY_PAGES = (f"--query-gpu={','.join(PAGE_FIELDS)}", "--format=csv")
LIST = ("-L",)

NOT_OF_A_SLICE = "nvidia-smi tells it of the whole card, not of a slice"

_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CARD_UUID = f"GPU-{_UUID}"
_SLICE_UUID = f"MIG-(?:{_UUID}|{_CARD_UUID}/[0-9]+/[0-9]+)"  # drivers before 470 name card/instance/compute instance

_WORDS = {
    "index": "[0-9]+",
    "uuid": _CARD_UUID,
    "pci.bus_id": _ADDRESS,
    "name": ".+",
    "driver_version": "[0-9]+(?:\\.[0-9]+)+",
    "mig.mode.current": "Enabled|Disabled",
    "gpu_uuid": _CARD_UUID,
    "pid": "[0-9]+",
    "process_name": ".+",
    "remapped_rows.uncorrectable": "[0-9]+",
    "remapped_rows.pending": "Yes|No|[01]",
    "remapped_rows.failure": "Yes|No|[01]",
    "retired_pages.pending": "Yes|No",
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

_LOST_CARD = re.compile(
    r"(?P<handle>Unable to \w+ the device handle for )?"
    rf"GPU ?(?:(?:(?P<index>[0-9]{{1,3}}):? )??(?P<address>{_ADDRESS})|(?P<only_index>[0-9]{{1,3}})): (?P<words>.+)",
    re.IGNORECASE,
)
"""Releases name the card by index, by address or by both, with or without a space before it."""
_LOST = re.compile(r"Unknown Error|GPU is lost.*|GPU requires reset.*", re.IGNORECASE)
"""What follows a card that is named alone: a card of `-L` is followed by its name."""
_BROKEN_CELL = re.compile(r"\[.*(requires reset|is lost).*\]", re.IGNORECASE)
_NO_CARDS = "No devices were found"
_LISTED_CARD = re.compile(rf"GPU ([0-9]+): (.+) \(UUID: ({_CARD_UUID})\)")
_LISTED_SLICE = re.compile(rf"\s+MIG (\S+)\s+Device\s+([0-9]+): \(UUID: ({_SLICE_UUID})\)")


def parse_query_gpu(text: str) -> list[Reading]:
    """One reading per card, keyed by its UUID, and one without figures for every card that the driver has lost."""
    lost = parse_lost(text)
    if lost and not _other_lines(text):
        return lost
    without_default_limit = tuple(field for field in GPU_FIELDS if field != "power.default_limit")
    rows = _rows(text, (GPU_FIELDS, without_default_limit))
    if not rows:
        raise UnknownLayout("nvidia-smi --query-gpu printed no card", text)
    for key in ("index", "uuid", "pci.bus_id"):
        _refuse_twice([row[key].text for row in rows if key in row and not is_nothing(row[key].text)], text)
    return [*lost, *(_reading(row, text) for row in rows)]


def parse_list(text: str) -> list[Reading]:
    """Cards and, after each, its slices: keyed by UUID, without figures. A slice names its card as `card`. Lost cards
    come first."""
    found = parse_lost(text)
    card: dict[str, str] = {}
    numbers: list[str] = []
    for line in _other_lines(text):
        if whole := _LISTED_CARD.fullmatch(line):
            card = {"index": whole[1], "name": whole[2], "uuid": whole[3]}
            found.append(Reading(whole[3], properties=card))
            numbers = []
        elif (part := _LISTED_SLICE.fullmatch(line)) and card and part[2] not in numbers:
            numbers.append(part[2])
            name = f"{card['name']} MIG {part[1]}"
            properties = {**card, "name": name, "uuid": part[3], "slice": f"MIG {part[1]}", "card": card["uuid"]}
            found.append(Reading(part[3], properties=properties))
        else:
            raise UnknownLayout("nvidia-smi -L printed a line that is neither a card nor a slice of it", text, line)
    if not found:
        raise UnknownLayout("nvidia-smi -L printed no card", text)
    _refuse_twice([reading.device_id for reading in found], text)
    return found


def parse_lost(text: str) -> list[Reading]:
    """The cards that a text says to be lost, keyed by address or, where it has none, by index."""
    found: dict[str, Reading] = {}
    for line in text.splitlines():
        lost = _lost(line)
        if lost is not None:
            address, index = pci_address(lost["address"] or ""), lost["index"] or lost["only_index"] or ""
            said = {"problem": line.strip(), "index": index, "pci_address": address}
            properties = {name: value for name, value in said.items() if value}
            missing = dict.fromkeys(FIGURES, line.strip())
            found[address or index] = Reading(address or index, missing=missing, properties=properties)
    return list(found.values())


def parse_health(text: str) -> list[Reading]:
    """Cards keyed by UUID, with their `problem` where they have one."""
    return [_health(row) for row in _rows(text, (ROW_FIELDS, PAGE_FIELDS))]


def parse_compute_apps(text: str) -> list[ProcessReading]:
    """One per process and card. An idle machine prints the header alone."""
    rows = _rows(text, (APP_FIELDS, ("gpu_uuid", "pid", "process_name", "used_gpu_memory")))
    if any(is_nothing(row[key].text) for row in rows for key in ("gpu_uuid", "pid")):
        raise UnknownLayout("nvidia-smi --query-compute-apps printed a process without card or pid", text)
    return [_process(row["gpu_uuid"].text, int(row["pid"].text), row["used_gpu_memory"]) for row in rows]


def _process(card: str, pid: int, memory: Cell) -> ProcessReading:
    return ProcessReading(card, pid, read_cells(card, {"used_bytes": memory}).used_bytes)


CARDS = Query(QUERY_GPU, parse_query_gpu, FIGURES[:5], parse_lost)
LISTED = Query(LIST, parse_list, (), parse_lost)
ROWS = Query(QUERY_ROWS, parse_health, ())
PAGES = Query(QUERY_PAGES, parse_health, ())


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
    properties |= {"problem": words} if (words := _problem(row)) else {}
    reading = read_cells(key, cells, properties | ({"pci_address": address} if address else {}))
    return msgspec.structs.replace(reading, missing={**reading.missing, **no_column})


def _problem(row: Mapping[str, Cell]) -> str:
    """An unknown error is common in a cell of a healthy card; of its memory it is none."""
    broken = next((cell.text for cell in row.values() if _BROKEN_CELL.fullmatch(cell.text)), "")
    memory = row["memory.total"].text if "memory.total" in row else ""
    return broken.strip("[]") or ("Unknown Error of its memory" if memory == "[Unknown Error]" else "")


def _health(row: Mapping[str, Cell]) -> Reading:
    said = {field: cell.text in ("Yes", "1") for field, cell in row.items()}
    num_uncorrectable = row.get("remapped_rows.uncorrectable", Cell("0")).text
    bad_rows = int(num_uncorrectable) if not is_nothing(num_uncorrectable) else 0
    problem = row_problem(
        bad_rows, said.get("remapped_rows.pending", False), said.get("remapped_rows.failure", False)
    ) or (PAGES_WAIT if said.get("retired_pages.pending") else "")
    key = (row.get("gpu_uuid") or row["uuid"]).text
    return Reading(key, properties={"problem": problem} if problem else {})


def _lost(line: str) -> re.Match[str] | None:
    found = _LOST_CARD.fullmatch(line.strip())
    return found if found and (found["handle"] or _LOST.fullmatch(found["words"])) else None


def _other_lines(text: str) -> list[str]:
    """What an output says beside lost cards."""
    lines = [line for line in whole_lines(text) if line.strip() and _lost(line) is None]
    return [] if [line.strip() for line in lines] == [_NO_CARDS] and parse_lost(text) else lines


def _refuse_twice(keys: Sequence[str], text: str) -> None:
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise UnknownLayout(f"nvidia-smi printed {twice[0]} twice", text, twice[0])


# --- tables ---------------------------------------------------------------------------------------------------------


def _rows(text: str, questions: Sequence[tuple[str, ...]]) -> list[dict[str, Cell]]:
    """Known field -> cell. Columns go by the header; without one, by the question that was asked and its shapes."""
    lines = _other_lines(text)
    columns = _header(lines[0], {field for fields in questions for field in fields}, text) if lines else []
    if columns:
        lines = lines[1:]
    else:
        columns = next((list(fields) for fields in questions if lines and len(_split(lines[0])) == len(fields)), [])
    if not columns:
        raise UnknownLayout("neither a header of nvidia-smi's csv nor a row of it", text, "".join(lines[:1]))
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
            raise UnknownLayout(
                f"nvidia-smi's csv has {title!r}, not {name} in {_UNITS[name] or 'no unit'}", text, line
            )
        fields.append(name)
    found = [field for field in fields if field in known]
    if len(set(found)) != len(found):
        raise UnknownLayout("nvidia-smi's csv has a column twice", text, line)
    if found and not _is_enough(found):
        raise UnknownLayout(f"nvidia-smi's csv has only the columns {', '.join(found)}", text, line)
    return fields if found else []


def _is_enough(fields: Sequence[str]) -> bool:
    """Whose memory, and how much."""
    of_cards = "memory.used" in fields and {"uuid", "pci.bus_id", "index"} & set(fields)
    return bool(of_cards) or any(set(known) <= set(fields) for known in (APP_FIELDS, ROW_FIELDS, PAGE_FIELDS))


def _cells(line: str, columns: Sequence[str], text: str) -> list[str]:
    cells = _split(line)
    if "process_name" in columns and len(cells) > len(columns):
        at, surplus = columns.index("process_name"), len(cells) - len(columns)
        cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
    if len(cells) != len(columns):
        raise UnknownLayout(f"a row of nvidia-smi's csv has {len(cells)} cells, not {len(columns)}", text, line)
    return cells


def _cell(field: str, cell: str, has_units: bool, text: str) -> Cell:
    """Checked here, so that one odd cell refuses the whole output."""
    if field in _WORDS:
        if not is_nothing(cell) and not re.fullmatch(_WORDS[field], cell):
            raise UnknownLayout(f"nvidia-smi's csv has {cell!r} as {field}", text, cell)
        return Cell(cell)
    unit = _UNITS[field] if has_units else ""
    cell_number(cell, unit)
    return Cell(cell, unit, 1 << 20 if _UNITS[field] == "MiB" else 1)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]
