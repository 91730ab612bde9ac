"""mx-smi's outputs, one function each, read by titles, labels, headers and units.

    parse_memory        mx-smi --show-memory
    parse_board_power   mx-smi --show-board-power
    parse_temperature   mx-smi --show-temperature
    parse_usage         mx-smi --show-usage
    parse_version       mx-smi --show-version
    parse_json          mx-smi -j
    parse_list          mx-smi -L
    parse_dmon          mx-smi dmon --show-temperature --show-board-power --show-usage --show-bdf --format csv -c 1
    parse_table         mx-smi, the tables of 2.0 to 2.2.12 with their table of slices

Readings go by the card's PCI address and those of slices by `slice_key`; rows of dmon without an address by the index.
A shape that is not known raises UnknownLayout; a cell without a value is missing with what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, pci_address
from flagperf_metax.layouts import (
    ADDRESS,
    CARD_NAME,
    GIB,
    KIB,
    MIB,
    Block,
    card_reading,
    distinct,
    identity,
    plain_lines,
    read_log,
    slice_key,
    slice_words,
)
from flagperf_metax.table import parse_table

__all__ = [
    "parse_board_power",
    "parse_dmon",
    "parse_json",
    "parse_list",
    "parse_memory",
    "parse_table",
    "parse_temperature",
    "parse_usage",
    "parse_version",
]


# --- logs ------------------------------------------------------------------------------------------------------------


def parse_memory(text: str) -> list[Reading]:
    """`KB` are KiB: a card of 64 GiB has 67108864 of them."""
    figures = {"used_bytes": _Line("Memory/vram used", "KB", KIB), "total_bytes": _Line("Memory/vram total", "KB", KIB)}
    return _log_readings(text, figures)


def parse_board_power(text: str) -> list[Reading]:
    """The total of the supplies. The limit that is set is the property `power_limit_watts`."""
    figures = {"power_watts": _Line("Board Power/Total", "W")}
    return _log_readings(text, figures, {"power_limit_watts": "Board Power/Limit"})


def parse_temperature(text: str) -> list[Reading]:
    """The hotspot. The number of its sensor changes from call to call."""
    return _log_readings(text, {"temperature_celsius": _Line(r"Chip Temperature/hotspot(\(sensor\d+\))?", "C")})


def parse_usage(text: str) -> list[Reading]:
    return _log_readings(text, {"utilisation_percent": _Line("Utilization/GPU", "%")})


def parse_version(text: str) -> list[Reading]:
    """No figures: the versions are properties."""
    return _log_readings(text, {}, {"driver": "Version/KMD", "maca": "Version/MACA", "bios": "Version/BIOS"})


class _Line(NamedTuple):
    """The pattern of a figure's `section/label`, the unit that must follow the number, and how much of ours that is."""

    label: str
    unit: str
    scale: int = 1


def _log_readings(
    text: str, figures: Mapping[str, _Line], properties: Mapping[str, str] = MappingProxyType({})
) -> list[Reading]:
    """A property is the first word behind its label."""
    return distinct([_block_reading(block, figures, properties, text) for block in read_log(text)], text)


def _block_reading(block: Block, figures: Mapping[str, _Line], properties: Mapping[str, str], text: str) -> Reading:
    cells, missing = {}, {}
    for figure, line in figures.items():
        values = _values(block, line.label)
        if len(values) == 1:
            cells[figure] = Cell(values[0], line.unit, line.scale)
        elif not values and block.errors:
            missing[figure] = f"mx-smi: {block.errors[0]}"
        else:
            raise UnknownLayout(f"mx-smi: {len(values)} lines {line.label!r} of {block.address}", text)
    words = {name: block.values.get(label, "").partition(" ")[0] for name, label in properties.items()}
    if not (figures or block.errors or any(words.values())):
        raise UnknownLayout(f"mx-smi: no line {' or '.join(properties.values())} of {block.address}", text)
    names = identity(block.index, block.name, block.address)
    return card_reading(block.address, cells, {**names, **words}, missing)


def _values(block: Block, label: str) -> list[str]:
    return [value for name, value in block.values.items() if re.fullmatch(label, name)]


# --- -j --------------------------------------------------------------------------------------------------------------


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _JsonSlice(msgspec.Struct, frozen=True):
    sgpu_id: _Count
    compute_quota: _Count
    vram_quota: _Count
    utilization: str


class _JsonPower(msgspec.Struct, frozen=True):
    """By supply: `Way0`, `Way1` and so on."""

    power: dict[str, str | float] = {}
    voltage: Any = None
    current: Any = None


class _JsonCard(msgspec.Struct, frozen=True):
    device_id: _Count
    unavailable_reason: str = ""
    vbios_version: str = ""
    hotspot: str | float | None = None
    utilization: str | int | None = None
    clocks: dict[str, Any] = {}
    board_power: _JsonPower = _JsonPower()
    sgpu_info: list[_JsonSlice] = []


class _JsonHead(msgspec.Struct, frozen=True):
    """Only MetaX's tool has a MACA version."""

    maca_version: str
    driver_version: str
    attached_gpus: int
    smi_version: str = ""


def parse_json(text: str) -> list[Reading]:
    """Has no memory of cards, and that of slices without its unit. Power is the sum of the supplies, and left out where
    something else stands among them."""
    document = _json_document(text)
    try:
        head = msgspec.convert(document, _JsonHead)
        listed = {key: value for key, value in document.items() if pci_address(key)}
        cards = {pci_address(key): msgspec.convert(value, _JsonCard) for key, value in listed.items()}
    except msgspec.ValidationError as error:
        raise UnknownLayout(f"mx-smi -j: {error}", text) from None
    if len(cards) < max(head.attached_gpus, len(listed)):
        raise UnknownLayout(f"mx-smi -j announces {head.attached_gpus} cards and has {len(cards)}", text)
    readings = [_json_card(address, card, head) for address, card in cards.items()]
    slices = [_json_slice(address, each) for address, card in cards.items() for each in card.sgpu_info]
    return distinct([*readings, *slices], text)


def _json_document(text: str) -> dict[str, Any]:
    """The tool prints its version before the document."""

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise UnknownLayout("mx-smi -j: a name is there twice", text)
        return dict(pairs)

    try:
        document = json.loads(text[max(text.find("{"), 0) :], object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise UnknownLayout(f"mx-smi -j is no JSON: {error}", text) from None
    return document if isinstance(document, dict) else {}


def _json_card(address: str, card: _JsonCard, head: _JsonHead) -> Reading:
    given = {
        "temperature_celsius": card.hotspot,
        "utilisation_percent": card.utilization,
        "power_watts": None if (odd_power := _odd_power(card.board_power)) else _json_watts(card.board_power),
        "clock_mhz": _json_clock(card.clocks),
    }
    why = card.unavailable_reason or "mx-smi -j does not have it of this card"
    properties = {
        "index": str(card.device_id),
        "pci_address": address,
        "problem": card.unavailable_reason,
        "bios": card.vbios_version,
        "driver": head.driver_version,
        "maca": head.maca_version,
        "mx_smi": head.smi_version,
    }
    cells = {figure: Cell(str(value)) for figure, value in given.items() if value is not None}
    missing = {figure: why for figure in given if figure not in cells}
    return card_reading(address, cells, properties, missing | ({"power_watts": odd_power} if odd_power else {}))


def _json_clock(clocks: Mapping[str, Any]) -> str | None:
    """Of the compute units. Releases 2.3 have it one level deeper, die by die: the slowest of them counts."""
    dies = [each for each in (clocks, *clocks.values()) if isinstance(each, dict) and "XCORE" in each]
    values = [str(die["XCORE"]) for die in dies]
    odd = next((value for value in values if not re.fullmatch("[0-9]{1,6}", value)), None)
    return odd if odd is not None else str(min(map(int, values), default="")) or None


_TOTAL = "Total"
_ROUNDING_WATTS = 0.5


def _odd_power(board: _JsonPower) -> str:
    """Why the sum of what is there would not be the card's power, "" where it is. That a supply is left out is seen by
    the numbers of the others, and by its voltage and current."""
    ways = _ways(board.power)
    if not board.power:
        return ""
    if not ways or set(ways) != {f"Way{number}" for number in range(len(ways))}:
        return f"mx-smi -j gives {', '.join(board.power)} as power: not the supplies Way0, Way1 and so on, each once"
    others = [names for names in (_ways(board.voltage), _ways(board.current)) if names and set(names) != set(ways)]
    if others:
        return f"mx-smi -j gives the power of {', '.join(ways)}, and other figures of {', '.join(others[0])}"
    if not all(_is_watts(str(value)) for value in board.power.values()):
        return ""
    together, total = _sum(board), float(board.power.get(_TOTAL, _sum(board)))
    if abs(total - together) > _ROUNDING_WATTS:
        return f"mx-smi -j gives a total of {total} W, and supplies of {together} W together"
    return ""


def _ways(supplies: Any) -> list[str]:
    return [name for name in supplies if name != _TOTAL] if isinstance(supplies, dict) else []


def _sum(board: _JsonPower) -> float:
    return round(sum(float(board.power[name]) for name in _ways(board.power)), 3)


def _json_watts(board: _JsonPower) -> str | None:
    """The total, or the sum of the supplies where there is none; or the first value that is no number."""
    values = [str(value) for value in board.power.values()]
    odd = next((value for value in values if not _is_watts(value)), None)
    return odd if odd is not None or not values else str(board.power.get(_TOTAL, _sum(board)))


def _is_watts(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) is not None


def _json_slice(address: str, part: _JsonSlice) -> Reading:
    cells = {"total_bytes": Cell(str(part.vram_quota), "", MIB), "utilisation_percent": Cell(part.utilization, "%")}
    missing = {"used_bytes": "mx-smi -j does not say in which unit a slice's vram_used is"}
    words = slice_words(str(part.sgpu_id), str(part.compute_quota), f"{part.vram_quota} MiB")
    return card_reading(slice_key(address, str(part.sgpu_id)), cells, {"pci_address": address, "slice": words}, missing)


# --- -L --------------------------------------------------------------------------------------------------------------

_STATE = r"(?:Available *\(UUID: (?P<uuid>\S+)\)|Not Available *\((?P<problem>[^()]+)\))"
_LISTED_CARD = re.compile(rf"GPU#(?P<index>[0-9]{{1,6}}) +(?P<name>{CARD_NAME}) +(?P<address>{ADDRESS}) +{_STATE}")
_LISTED_SLICE = re.compile(
    rf" +SGPU#(?P<id>[0-9]{{1,6}}) +(?P<quota>[0-9]{{1,3}})% +(?P<gib>[0-9.]{{1,12}})gb +{_STATE}(?: sgpu-\d+)?"
)


def parse_list(text: str) -> list[Reading]:
    """Cards with their UUIDs, or why they are not available; below a card its slices, `gb` being GiB."""
    readings: list[Reading] = []
    address = ""
    for line in plain_lines(text):
        card, part = _LISTED_CARD.fullmatch(line), _LISTED_SLICE.fullmatch(line)
        if card:
            address = pci_address(card["address"])
            readings.append(_listed_card(address, card))
        elif part and address:
            readings.append(_listed_slice(address, part))
        else:
            raise UnknownLayout("mx-smi -L: a line of no known kind", text, line)
    return distinct(readings, text)


def _listed_card(address: str, card: re.Match[str]) -> Reading:
    return card_reading(address, {}, {**identity(card["index"], card["name"], address), **_state(card)})


def _listed_slice(address: str, part: re.Match[str]) -> Reading:
    words = slice_words(part["id"], part["quota"], f"{part['gib']} GiB")
    cells = {"total_bytes": Cell(part["gib"], "", GIB)}
    properties = {"pci_address": address, "slice": words, **_state(part)}
    return card_reading(slice_key(address, part["id"]), cells, properties)


def _state(line: re.Match[str]) -> dict[str, str]:
    return {"uuid": line["uuid"] or "", "problem": line["problem"] or ""}


# --- dmon ------------------------------------------------------------------------------------------------------------

_DMON_COLUMNS = {
    "temperature_celsius": ("hottemp", "C"),
    "power_watts": ("power", "W"),
    "utilisation_percent": ("gpu", "%"),
}


def parse_dmon(text: str) -> list[Reading]:
    """A row of names, a row of units, a row per card. Memory is in whole percent: too coarse to be used."""
    rows = [[cell.strip() for cell in line.split(",")] for line in plain_lines(text)]
    header = rows[0]
    if "dev" not in header or len(set(header)) != len(header) or len(rows) < 2:
        raise UnknownLayout("mx-smi dmon: no row of names, with 'dev', and of units", text, ", ".join(header))
    if any(len(row) != len(header) for row in rows):
        raise UnknownLayout(f"mx-smi dmon: a row has not the {len(header)} cells of the row of names", text)
    units, *cards = [dict(zip(header, row, strict=True)) for row in rows[1:]]
    return distinct([_dmon_card(cells, units, text) for cells in cards], text)


def _dmon_card(cells: Mapping[str, str], units: Mapping[str, str], text: str) -> Reading:
    shown = {figure: column for figure, (column, _) in _DMON_COLUMNS.items() if column in cells}
    for column, unit in (("dev", "idx"), *_DMON_COLUMNS.values()):
        if units.get(column, unit) != unit:
            raise UnknownLayout(f"mx-smi dmon: {column!r} is in {units[column]!r}, not in {unit!r}", text)
    if not re.fullmatch("[0-9]{1,6}", cells["dev"]):
        raise UnknownLayout(f"mx-smi dmon: the card's index is {cells['dev']!r}", text)
    address = pci_address(cells.get("bdfid", ""))
    return card_reading(
        address or cells["dev"],
        {figure: Cell(cells[column]) for figure, column in shown.items()},
        {"index": cells["dev"], "pci_address": address},
        {figure: "mx-smi dmon has no column for it" for figure in _DMON_COLUMNS if figure not in shown},
    )
