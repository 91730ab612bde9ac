"""What mx-smi's outputs have in common: cells with units, whole lines, logs of one block per card."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, pci_address, read_cells, whole_lines

CARD_NAME = r"(?:MX|MetaX )\S+(?: \S+)*"
"""Another company ships a tool of the same name: cards that are called otherwise are not MetaX's."""
ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_VERSION_LINE = re.compile(r"mx-smi +version: \S+")
_TITLE = re.compile(r"=+ MetaX System Management Interface Log =+")
_COUNT = re.compile(r"Attached GPUs +: ([0-9]{1,6})")
_CARD_LINE = re.compile(rf"GPU#([0-9]{{1,6}}) +({CARD_NAME}) +({ADDRESS})")
_PAIR = re.compile(r" +([^:]*[^: ]) *:(.*)")


def card_reading(
    key: str,
    cells: Mapping[str, Cell],
    properties: Mapping[str, str],
    missing: Mapping[str, str] = MappingProxyType({}),
) -> Reading:
    """`missing` are figures that have no cell, with the reason."""
    reading = read_cells(key, cells, properties)
    return msgspec.structs.replace(reading, missing={**reading.missing, **missing})


def identity(index: str, name: str, address: str) -> dict[str, str]:
    return {"index": index, "name": name, "pci_address": address}


def slice_key(address: str, sgpu_id: str) -> str:
    """What a slice is called here: three outputs list slices, and only one of them gives their UUIDs."""
    return f"{address}/sgpu-{sgpu_id}"


def slice_words(sgpu_id: str, compute_percent: str, memory: str) -> str:
    return f"sGPU {sgpu_id}: {compute_percent}% compute, {memory}"


def distinct(readings: Sequence[Reading], text: str) -> list[Reading]:
    """A card that is listed twice has figures that belong to another one."""
    keys = [reading.device_id for reading in readings]
    indices = [reading.properties["index"] for reading in readings if "index" in reading.properties]
    for names in (keys, indices):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UnknownLayout(f"mx-smi lists {', '.join(twice)} twice", text)
    return list(readings)


def plain_lines(text: str) -> list[str]:
    """The lines of an output that has no last line of its own to tell whether it is whole."""
    lines = [line.rstrip() for line in whole_lines(text) if line.strip()]
    lines = lines[1:] if lines and _VERSION_LINE.fullmatch(lines[0]) else lines
    if not lines:
        raise UnknownLayout("mx-smi printed nothing", text)
    return lines


# --- logs: a title, the number of cards, a block of `label : value unit` lines per card ------------------------------


class Block(msgspec.Struct):
    """`values` go by `section/label`; `errors` are lines that the tool printed in place of values."""

    index: str
    name: str
    address: str
    values: dict[str, str]
    errors: list[str]


def read_log(text: str) -> list[Block]:
    """A log is whole when its last line says so and it has as many cards as it announces."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines or lines[-1] != "End of Log":
        raise UnknownLayout("mx-smi: the log does not end with 'End of Log'", text, "".join(lines[-1:]))
    first = next((number for number, line in enumerate(lines) if line.startswith("GPU#")), len(lines) - 1)
    num_announced = announced_cards(lines[:first], text)
    blocks = _read_blocks(lines[first:-1], text)
    if num_announced != len(blocks):
        raise UnknownLayout(f"mx-smi announces {num_announced} cards and lists {len(blocks)}", text)
    return blocks


def announced_cards(head: Sequence[str], text: str) -> int | None:
    """How many cards the lines above them announce. The title says whose tool this is."""
    if not any(_TITLE.fullmatch(line) for line in head):
        raise UnknownLayout("no title of MetaX's mx-smi; another company ships a tool of that name", text)
    count = None
    for line in head:
        announced = _COUNT.fullmatch(line)
        if announced:
            count = int(announced[1])
        elif not (_TITLE.fullmatch(line) or _VERSION_LINE.fullmatch(line) or line.startswith("Timestamp ")):
            raise UnknownLayout("mx-smi: a line of no known kind", text, line)
    return count


def _read_blocks(lines: Sequence[str], text: str) -> list[Block]:
    blocks: list[Block] = []
    section = ""
    for line in lines:
        card, pair = _CARD_LINE.fullmatch(line), _PAIR.fullmatch(line)
        if card:
            blocks.append(Block(card[1], card[2], pci_address(card[3]), {}, []))
            section = ""
        elif blocks and _is_error_of(blocks[-1], line):
            blocks[-1].errors.append(line.strip())
        elif blocks and pair:
            _add(blocks[-1], f"{section}/{pair[1]}", pair[2].strip(), text)
        elif blocks and line.startswith(" "):
            section = line.strip()
        else:
            raise UnknownLayout("mx-smi: a line of no known kind", text, line)
    return blocks


def _is_error_of(block: Block, line: str) -> bool:
    """Like `GPU#0 show-pcie-slot Sysfs error: No such file or directory`, printed in place of values."""
    return "error: " in line and (not line.startswith("GPU#") or line.startswith(f"GPU#{block.index} "))


def _add(block: Block, label: str, value: str, text: str) -> None:
    if label in block.values:
        raise UnknownLayout(f"mx-smi: {label!r} of {block.address} is there twice", text, f"{label} : {value}")
    block.values[label] = value
