"""What xpu-smi prints (`xpu_smi` in older XRE releases), one function per output:

    parse_machine   xpu-smi -m: a line of 32 known words per device, without a header; releases may add more
    parse_query     xpu-smi -q: blocks of labels
    parse_table     xpu-smi alone: three lines per card in XRE 5, the DEVICES table in XRE 4

A card is keyed by its PCI address. A K200 board has two devices on one address: these are keyed by serial number and
chip, or by the tool's number where the table has no chip. MB means MiB here. Intel's tool of the same name has none of
these shapes.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Cell, cell_number, is_nothing, pci_address, read_cells, whole_lines

MIB = 1 << 20
NUM_MACHINE_WORDS = 32
_FIRMWARE = re.compile(r"\w+([.:]\w+)+")
_INTEGER = re.compile(r"[0-9]{1,6}")
NORMAL = "N"
MOST_WATTS = 1000
LEAST_MILLIWATTS = 5000
"""An old K200 tool prints milliwatts in the column of watts. No known card draws a kilowatt, and none as little as five
watts: what lies between may be either."""
HIGHEST = {"total_bytes": 1 << 40, "utilisation_percent": 100, "power_watts": 2000}
"""More than this was in another unit, or of another column."""

_HEADER = (
    "XPU Name Persistence-M | Bus-Id Disp.A | Volatile Uncorr. ECC",
    "Fan Temp Perf Pwr:Usage/Cap | Memory-Usage | XPU-Util Compute M.",
    " | L3-Usage | SR-IOV M.",
)
_TITLE = re.compile(r"\| XPU-SMI\s.*Driver Version:\s*(\S+)\s+XPU-RT Version:\s*(\S+)\s*\|")
_NAME = re.compile(r"([0-9]{1,6})\s+(\S.*?)\s+(?:N/A|On|Off)")
_POWER = re.compile(r"\S+\s+(\S+)\s+\S+\s+(\S+)\s*/\s*(\S+)")
_AMOUNTS = re.compile(r"(\S+)\s*/\s*(\S+)")
_BLOCK = re.compile(r"XPU (\S+)")
_RULE = re.compile(r"[+-]+")
_LABELLED = re.compile(r"(\S.*?)\s+: (.*)")


class _Row(msgspec.Struct, frozen=True):
    """One device as printed. `other_key` tells it from another one on the same address."""

    index: str
    address: str
    other_key: str
    cells: dict[str, Cell]
    properties: dict[str, str]
    line: str
    """Or lines, as far as one can be quoted."""
    missing: dict[str, str] = {}


def parse_machine(text: str) -> list[Reading]:
    return _readings([_machine_row(line, text) for line in whole_lines(text) if line.strip()], text)


def parse_query(text: str) -> list[Reading]:
    blocks = _blocks(whole_lines(text), text)
    general = blocks.pop("")
    versions = _versions(general.get("Driver Version", ""), general.get("XPU-RT Version", ""))
    driver = versions.get("driver", "")
    return _readings([_query_row(bus_id, labels, driver, text) for bus_id, labels in blocks.items()], text)


def parse_table(text: str) -> list[Reading]:
    lines = text.splitlines()
    if any(line.strip() == "DEVICES" for line in lines):
        return _readings(list(_device_rows(lines, text)), text)
    return _readings(list(_card_rows(lines, text)), text)


def _readings(rows: Sequence[_Row], text: str) -> list[Reading]:
    if not rows:
        raise UnknownLayout("xpu-smi named no device", text)
    on_address = Counter(row.address for row in rows)
    keys = [row.address if on_address[row.address] == 1 else row.other_key for row in rows]
    indices = [row.index for row in rows if row.index]
    if len(set(keys)) != len(keys) or len(set(indices)) != len(indices):
        raise UnknownLayout("xpu-smi named a device twice", text)
    return [_reading(key, row, text) for key, row in zip(keys, rows, strict=True)]


def _reading(key: str, row: _Row, text: str) -> Reading:
    reading = read_cells(key, row.cells, {"index": row.index, "pci_address": row.address, **row.properties})
    for figure, most in {**HIGHEST, "used_bytes": reading.total_bytes}.items():
        value = getattr(reading, figure)
        if value is not None and most is not None and value > most:
            words = f"xpu-smi gave {row.cells[figure].text.strip()!r} as {figure}, which no card can have"
            raise UnknownLayout(words, text, row.line)
    return msgspec.structs.replace(reading, missing={**reading.missing, **row.missing})


# --- xpu-smi -m ------------------------------------------------------------------------------------------------------


def _machine_row(line: str, text: str) -> _Row:
    try:
        words = shlex.split(line)
    except ValueError:
        words = []
    if not _has_known_words(words):
        raise UnknownLayout(f"xpu-smi -m gave a line that has not the {NUM_MACHINE_WORDS} known words", text, line)
    index, serial, chip = words[2], words[3], words[22]
    power, missing = _power(words[8])
    cells = {
        "used_bytes": Cell(words[17], scale=MIB),
        "total_bytes": Cell(words[18], scale=MIB),
        "utilisation_percent": Cell(words[19]),
        "temperature_celsius": Cell(words[4]),
        **power,
    }
    properties = {"name": words[21], "serial": serial, "chip": chip, "firmware": words[20]}
    return _Row(index, _address(words[0], text), f"{serial}/{chip}", cells, properties, line, missing)


def _has_known_words(words: Sequence[str]) -> bool:
    """Without a header the places count, so the words that have a shape of their own must be where they belong. More
    may follow, not stand between."""
    if len(words) < NUM_MACHINE_WORDS or words[5] != "0" or words[7] != "0":
        return False
    firmware, name, chip = words[20:23]
    numbers = all(_INTEGER.fullmatch(word) for word in (words[2], chip))
    named = bool(re.search("[A-Za-z]", name)) and not _FIRMWARE.fullmatch(name)
    return numbers and named and (is_nothing(firmware) or bool(_FIRMWARE.fullmatch(firmware)))


# --- xpu-smi -q ------------------------------------------------------------------------------------------------------


def _blocks(lines: Sequence[str], text: str) -> dict[str, dict[str, str]]:
    """Bus id -> labels, each with the headings above it: `Memory Usage/Total`. What stands before them is under ""."""
    blocks: dict[str, dict[str, str]] = {"": {}}
    current, headings = blocks[""], dict[int, str]()
    for line in lines:
        indent, words = len(line) - len(line.lstrip()), line.strip()
        headings = {depth: heading for depth, heading in headings.items() if depth < indent}
        if (found := _BLOCK.fullmatch(line.rstrip())) is not None:
            if found[1] in blocks:
                raise UnknownLayout(f"xpu-smi -q named {found[1]} twice", text, line)
            current = blocks[found[1]] = {}
        elif (found := _LABELLED.fullmatch(words)) is not None:
            label = "/".join([*headings.values(), found[1]])
            if label in current:
                raise UnknownLayout(f"xpu-smi -q gave {label!r} of a card twice", text, line)
            current[label] = found[2]
        elif words:
            headings[indent] = words
    return blocks


def _query_row(bus_id: str, labels: Mapping[str, str], driver: str, text: str) -> _Row:
    try:
        cells = {
            "used_bytes": Cell(labels["Memory Usage/Used"], "MiB", MIB),
            "total_bytes": Cell(labels["Memory Usage/Total"], "MiB", MIB),
            "utilisation_percent": Cell(labels["Utilization/Xpu"], "%"),
            "power_watts": Cell(labels["Power Readings/Power Draw"], "W"),
            "temperature_celsius": Cell(labels["Temperature/XPU Current Temp"], "C"),
        }
        named = {"name": labels["Product Name"], "serial": labels["Serial Number"], "uuid": labels["XPU UUID"]}
    except KeyError as error:
        raise UnknownLayout(f"xpu-smi -q gave no {error.args[0]!r} for {bus_id}", text) from None
    limit = labels.get("Power Readings/Enforced Power Limit", "").removesuffix("W").strip()
    properties = {
        **named,
        "power_limit_watts": limit,
        "driver": driver,
        "node": labels.get("Minor Number", ""),
        "problem": _memory_problem(labels.get("ECC Errors/Volatile/DRAM Uncorrectable", "")),
    }
    return _Row("", _address(bus_id, text), named["uuid"], cells, properties, bus_id)


# --- xpu-smi alone, XRE 5 --------------------------------------------------------------------------------------------


def _card_rows(lines: Sequence[str], text: str) -> Iterator[_Row]:
    titles = [(at, found) for at, line in enumerate(lines) if (found := _TITLE.match(line))]
    at, title = titles[0] if titles else (0, None)
    header = tuple(" | ".join(" ".join(cell.split()) for cell in _cells(line)) for line in lines[at + 2 : at + 5])
    if title is None or header != _HEADER:
        raise UnknownLayout("xpu-smi gave no table with the header that is known", text, _first_other(header))
    versions = _versions(title[1], title[2])
    chunk: list[list[str]] = []
    end = len(lines)
    for place, line in enumerate(lines[at + 6 :], at + 6):
        if line.startswith("|"):
            chunk.append(_cells(line))
        elif line.startswith("+") and chunk:
            yield _card_row(chunk, versions, text)
            chunk = []
        else:
            end = place
            break
    if chunk:
        raise UnknownLayout("xpu-smi gave a table that ends within a card", text)
    _refuse_more(lines[end:], text)


def _refuse_more(lines: Sequence[str], text: str) -> None:
    """Behind the cards comes the box of processes, or nothing: anything else may hide cards that follow it."""
    said = next((line for line in lines if line.strip() and not _RULE.fullmatch(line.strip())), "")
    if said and not said.startswith("| Processes:"):
        raise UnknownLayout("xpu-smi gave something else than processes behind its cards", text, said)


def _card_row(chunk: Sequence[Sequence[str]], versions: dict[str, str], text: str) -> _Row:
    if [len(cells) for cells in chunk] != [3, 3, 3]:
        raise UnknownLayout("xpu-smi gave a card that has not three lines of three cells", text, _shown(chunk))
    (name, bus, errors), (power, memory, use), _ = chunk
    named, drawn, amounts = _NAME.fullmatch(name), _POWER.fullmatch(power), _AMOUNTS.fullmatch(memory)
    if named is None or drawn is None or amounts is None or not bus or not use:
        raise UnknownLayout("xpu-smi gave a card whose cells are not as their header says", text, _shown(chunk))
    cells = {
        "used_bytes": Cell(amounts[1], "MiB", MIB),
        "total_bytes": Cell(amounts[2], "MiB", MIB),
        "utilisation_percent": Cell(use.split()[0], "%"),
        "power_watts": Cell(drawn[2], "W"),
        "temperature_celsius": Cell(drawn[1], "C"),
    }
    properties = {
        "name": named[2],
        "power_limit_watts": drawn[3].removesuffix("W"),
        "problem": _memory_problem(errors),
        **versions,
    }
    return _Row(named[1], _address(bus.split()[0], text), named[1], cells, properties, _shown(chunk))


# --- xpu_smi alone, XRE 4 --------------------------------------------------------------------------------------------


def _device_rows(lines: Sequence[str], text: str) -> Iterator[_Row]:
    start = next(at for at, line in enumerate(lines) if line.strip() == "DEVICES")
    header = _cells(lines[start + 2]) if len(lines) > start + 3 else []
    known = {"DevID", "PCI Addr", "Model", "SN", "UseRate", "Memory"}
    if not known <= set(header) or len(set(header)) != len(header):
        raise UnknownLayout("xpu_smi gave no DEVICES table with the columns that are known", text, " | ".join(header))
    end = next((at for at in range(start + 4, len(lines)) if lines[at].startswith("-")), None)
    if end is None:
        raise UnknownLayout("xpu_smi gave a DEVICES table that does not end", text)
    stated = {name.strip(): said.strip() for name, _, said in (line.partition(" Version:") for line in lines[:start])}
    versions = _versions(stated.get("Driver", ""), stated.get("Runtime", ""))
    for line in lines[start + 4 : end]:
        cells = _cells(line)
        if len(cells) != len(header):
            raise UnknownLayout("xpu_smi gave a row that does not fit its header", text, line)
        yield _device_row(dict(zip(header, cells, strict=True)), versions, text)


def _device_row(row: Mapping[str, str], versions: dict[str, str], text: str) -> _Row:
    amounts = re.fullmatch(r"(\S+)\s*/\s*(\S.*)", row["Memory"])
    if amounts is None or not _INTEGER.fullmatch(row["DevID"]):
        raise UnknownLayout("xpu_smi gave a device without its number or its memory", text, " | ".join(row.values()))
    cells = {
        "used_bytes": Cell(amounts[1], scale=MIB),
        "total_bytes": Cell(amounts[2], "MB", MIB),
        "utilisation_percent": Cell(row["UseRate"], "%"),
    }
    optional = {"power_watts": "Power(W)", "temperature_celsius": "Temp"}
    missing = {
        figure: f"this release's table has no column {column}"
        for figure, column in optional.items()
        if column not in row
    }
    if "Temp" in row:
        cells["temperature_celsius"] = Cell(row["Temp"])
    if "Power(W)" in row:
        power, unclear = _power(row["Power(W)"])
        cells, missing = {**cells, **power}, {**missing, **unclear}
    node = row.get("INODE", "").removeprefix("/dev/xpu")
    state = row.get("State", NORMAL)
    problem = "" if state == NORMAL or is_nothing(state) else f"xpu_smi says that its state is {state}"
    properties = {"name": row["Model"], "serial": row["SN"], "node": node, "problem": problem, **versions}
    return _Row(
        row["DevID"],
        _address(row["PCI Addr"], text),
        row["DevID"],
        cells,
        properties,
        " | ".join(row.values()),
        missing,
    )


# --- pieces ----------------------------------------------------------------------------------------------------------


def _power(text: str) -> tuple[dict[str, Cell], dict[str, str]]:
    """A column of watts without a unit in its cells: the cell, or why there is none."""
    number = cell_number(text)
    if number is None or number <= MOST_WATTS:
        return {"power_watts": Cell(text)}, {}
    if number < LEAST_MILLIWATTS:
        return {}, {"power_watts": f"the tool says {text.strip()!r}, which may be watts or milliwatts"}
    return {"power_watts": Cell(text, scale=0.001)}, {}


def _versions(driver: str, runtime: str) -> dict[str, str]:
    """In a container that answers to another vendor's names the driver is not this vendor's, and there is no
    runtime."""
    return {"driver": driver, "runtime": runtime} if driver and runtime not in ("", "N/A") else {}


def _memory_problem(num_errors: str) -> str:
    """Of memory errors that could not be corrected since the card was started."""
    if not _INTEGER.fullmatch(num_errors) or int(num_errors) == 0:
        return ""
    return f"{num_errors} uncorrectable memory errors since it was started: it needs a reset"


def _shown(chunk: Sequence[Sequence[str]]) -> str:
    return " / ".join(" | ".join(cells) for cells in chunk)


def _first_other(header: Sequence[str]) -> str:
    return next((line for line, known in zip(header, _HEADER, strict=False) if line != known), "")


def _address(words: str, text: str) -> str:
    address = pci_address(words)
    if not address:
        raise UnknownLayout(f"xpu-smi gave {words!r} where a PCI address was expected", text, words)
    return address


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
