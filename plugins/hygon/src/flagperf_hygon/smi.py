"""What hy-smi prints (`rocm-smi` in older DTK releases), one function per output:

    parse_json    hy-smi --showmeminfo vram --json, and any other --show option with --json
    parse_csv     the same options with --csv
    parse_text    the same options with neither
    parse_table   hy-smi alone

Cards are keyed by the tool's own number, which starts at 0, in DTK 22.10 at 1. Figures go by label and unit. A label
that is not known is passed over; one that is known with another unit is refused, and so is AMD's rocm-smi, which says
GPU where this one says DCU or HCU, and VRAM where this one says vram. What it says of power, temperature and bus has
the same labels as here: there the bus tells whose card it is (device.py).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, is_nothing, pci_address, read_cells, whole_lines

MIB = 1 << 20
BUSY_PERCENT = 10.0
LEAST_IDLE_WATTS = 20.0
"""Idle K100_AI were seen at 22 to 25 W. One host's tool says 8.0W of cards under full load."""

_FIGURES: dict[str, tuple[str, str, float]] = {
    "vram Total Memory (MiB)": ("total_bytes", "", MIB),
    "vram Total Memory (B)": ("total_bytes", "", 1),
    "vram Total Used Memory (MiB)": ("used_bytes", "", MIB),
    "vram Total Used Memory (B)": ("used_bytes", "", 1),
    "HCU use (%)": ("utilisation_percent", "", 1),
    "DCU use (%)": ("utilisation_percent", "", 1),
    "HCU util in last second": ("utilisation_percent", "%", 1),
    "DCU util in last second": ("utilisation_percent", "%", 1),
    "Average Graphics Package Power (W)": ("power_watts", "", 1),
    "Temperature (Sensor edge) (C)": ("temperature_celsius", "", 1),
    "Temperature (Sensor core) (C)": ("temperature_celsius", "", 1),
    "Temperature (Sensor junction) (C)": ("temperature_celsius", "", 1),
}
"""Label -> figure, unit within the cell, scale. Of several labels for one figure the first here counts."""

_PROPERTIES = {
    "Card Series": "name",
    "Card series": "name",
    "PCI Bus": "pci_address",
    "Device ID": "pci_id",
    "Unique ID": "unique_id",
    "Serial Number": "serial",
    "Max Graphics Package Power (W)": "power_limit_watts",
    "HCU memory use (%)": "memory_use_percent",
    "DCU memory use (%)": "memory_use_percent",
    "Available memory size (MiB)": "available_mib",
}
_UNIT = re.compile(r" \([^()]*\)$")
_QUANTITIES = {_UNIT.sub("", label) for label in _FIGURES}
_NUMBER = re.compile("[0-9]{1,6}")
_CARD = re.compile(rf"card({_NUMBER.pattern})")
_TEXT_LINE = re.compile(rf"[DH]CU\[({_NUMBER.pattern})\]\s*:\s*([^:]+):?(.*)")
_OF_AMD = re.compile(r"GPU (?!Memory Allocated)|VRAM ")
"""How labels begin. Old releases here say `GPU Memory Allocated (VRAM%)` as well."""
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")


def parse_json(text: str) -> list[Reading]:
    _, brace, rest = text.partition("{")
    try:
        answer = json.loads(brace + rest, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise UnknownLayout("hy-smi --json gave no JSON", text) from None
    cards = {_number(name, text): cells for name, cells in answer.items() if name != "system"}
    if not all(isinstance(cells, dict) for cells in cards.values()):
        raise UnknownLayout("hy-smi --json gave cards without labels", text)
    return _readings(cards, text)


def parse_csv(text: str) -> list[Reading]:
    rows = list(csv.reader(line for line in whole_lines(text) if line.strip()))
    header = rows[0] if rows else []
    if header[:1] != ["device"] or len(set(header)) != len(header):
        raise UnknownLayout("hy-smi --csv gave no header that begins with `device`", text, ",".join(header))
    cards: dict[str, Mapping[str, Any]] = {}
    for row in rows[1:]:
        number = _number(row[0], text)
        if len(row) != len(header) or number in cards:
            raise UnknownLayout(f"hy-smi --csv gave a row of {row[0]} that does not fit", text, ",".join(row))
        cards[number] = dict(zip(header[1:], row[1:], strict=True))
    return _readings(cards, text)


def parse_text(text: str) -> list[Reading]:
    cards: dict[str, dict[str, Any]] = {}
    driver = ""
    for line in map(str.strip, whole_lines(text)):
        if found := _TEXT_LINE.fullmatch(line):
            number, label, value = (part.strip() for part in found.groups())
            if label in cards.setdefault(number, {}):
                raise UnknownLayout(f"hy-smi gave {label!r} of card {number} twice", text, line)
            cards[number][label] = value
        elif found := _DRIVER.fullmatch(line):
            driver = found[1]
        elif line and not line.startswith("="):
            raise UnknownLayout("hy-smi gave a line that is neither a card's nor a rule", text, line)
    readings = _readings(cards, text)
    return [_with(reading, "driver", driver) for reading in readings] if driver else readings


def parse_table(text: str) -> list[Reading]:
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.split()[:1] in (["DCU"], ["HCU"])), None)
    header = lines[start].split() if start is not None else []
    if start is None or not {"Temp", "AvgPwr", "PwrCap", "VRAM%", f"{header[0]}%"} <= set(header):
        raise UnknownLayout(
            "hy-smi gave no table of DCUs or HCUs with the columns that are known", text, " ".join(header)
        )
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("=")), None)
    if end is None or len(set(header)) != len(header):
        raise UnknownLayout("hy-smi gave a table that does not end, or names a column twice", text)
    return _table_rows(header, [line.split() for line in lines[start + 1 : end]], text)


def driver_version(text: str) -> str:
    """Of hy-smi --showdriverversion."""
    found = [match[1] for line in whole_lines(text) if (match := _DRIVER.fullmatch(line.strip()))]
    if len(found) != 1:
        raise UnknownLayout("hy-smi --showdriverversion gave no line `Driver Version: ...`", text)
    return found[0]


def plausible(reading: Reading) -> Reading:
    """Without a power that no busy card can have."""
    power, busy = reading.power_watts, reading.utilisation_percent
    if power is None or busy is None or busy < BUSY_PERCENT or power >= LEAST_IDLE_WATTS:
        return reading
    missing = {**reading.missing, "power_watts": f"implausible: {power:g} W at {busy:g} % utilisation"}
    return msgspec.structs.replace(reading, power_watts=None, missing=missing)


def _table_rows(header: Sequence[str], rows: Sequence[Sequence[str]], text: str) -> list[Reading]:
    readings: dict[str, Reading] = {}
    for row in rows:
        if len(row) != len(header) or not _NUMBER.fullmatch(row[0]) or row[0] in readings:
            raise UnknownLayout("hy-smi gave a table row that does not fit its header", text, " ".join(row))
        readings[row[0]] = _table_reading(dict(zip(header, row, strict=True)), header[0])
    if not readings:
        raise UnknownLayout("hy-smi gave a table without a card", text)
    return list(readings.values())


def _table_reading(row: Mapping[str, str], word: str) -> Reading:
    cells = {
        "utilisation_percent": Cell(row[f"{word}%"], "%"),
        "power_watts": Cell(row["AvgPwr"], "W"),
        "temperature_celsius": Cell(row["Temp"], "C"),
    }
    properties = {
        "form": "table",
        "memory_use_percent": row["VRAM%"],
        "power_limit_watts": row["PwrCap"].removesuffix("W"),
    }
    why = "the table gives memory in whole percents only"
    whole_percent = dict.fromkeys(("used_bytes", "total_bytes"), why)
    reading = read_cells(row[word], cells, properties)
    return plausible(msgspec.structs.replace(reading, missing={**reading.missing, **whole_percent}))


def _readings(cards: Mapping[str, Mapping[str, Any]], text: str) -> list[Reading]:
    if not cards:
        raise UnknownLayout("hy-smi named no card", text)
    return [_reading(number, cells, text) for number, cells in cards.items()]


def _reading(number: str, cells: Mapping[str, Any], text: str) -> Reading:
    for label in cells:
        if _OF_AMD.match(label):
            raise UnknownLayout(f"hy-smi gave {label!r}, which AMD's rocm-smi says of its cards", text, label)
        if label not in _FIGURES and {label, _UNIT.sub("", label)} & _QUANTITIES:
            raise UnknownLayout(f"hy-smi gave {label!r}, which is known in other units only", text, label)
    figures: dict[str, Cell] = {}
    for label, (figure, unit, scale) in _FIGURES.items():
        if label in cells:
            figures.setdefault(figure, Cell(str(cells[label]), unit, scale))
    properties = {name: str(cells[label]).strip() for label, name in _PROPERTIES.items() if label in cells}
    if not figures and not properties:
        raise UnknownLayout(f"hy-smi gave no known label for card {number}", text)
    return plausible(read_cells(number, figures, _normal(properties, text)))


def _normal(properties: dict[str, str], text: str) -> dict[str, str]:
    bus = properties.get("pci_address", "")
    if not is_nothing(bus):
        properties["pci_address"] = pci_address(bus)
        if not properties["pci_address"]:
            raise UnknownLayout("hy-smi gave a PCI Bus that is no PCI address", text, bus)
    if "pci_id" in properties:
        properties["pci_id"] = properties["pci_id"].lower().removeprefix("0x")
    return properties


def _with(reading: Reading, name: str, value: str) -> Reading:
    return msgspec.structs.replace(reading, properties={**reading.properties, name: value})


def _number(name: str, text: str) -> str:
    found = _CARD.fullmatch(name)
    if found is None:
        raise UnknownLayout(f"hy-smi gave {name!r} where a card was expected", text, name)
    return found[1]


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise UnknownLayout("hy-smi --json named a card or a label twice", str(pairs))
    return dict(pairs)
