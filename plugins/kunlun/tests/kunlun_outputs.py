"""What xpu-smi prints, and exactly what it says: the tables of the suite for its parsers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import Reading
from flagperf.testing import Recorded, Refused
from flagperf.testing.mutations import changed
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

ADDRESSES = ("0000:1a:00.0", "0000:b4:00.0")
UUIDS = tuple(f"GPU-0a0a0a0a-1111-5222-8333-00000000a00{number}" for number in (1, 2))
MIB = 1 << 20


def transcript(name: str) -> str:
    return (Path(__file__).parent / "transcripts" / f"{name}.txt").read_text()


SERIALS = ("02K15K700AB00417", "02K15K700AB00522")
NO_COLUMN = {
    "power_watts": "this release's table has no column Power(W)",
    "temperature_celsius": "this release's table has no column Temp",
}


def machine(index: int, address: str, serial: str, name: str, firmware: str, chip: str = "0") -> dict[str, str]:
    return {
        "index": str(index), "pci_address": address, "name": name, "serial": serial, "chip": chip, "firmware": firmware,
    }  # fmt: skip


def p800(index: int, limit: str = "400") -> dict[str, str]:
    return {
        "index": str(index), "pci_address": ADDRESSES[index], "name": "P800 OAM", "power_limit_watts": limit,
    }  # fmt: skip


def query(index: int) -> dict[str, str]:
    return {
        "pci_address": ADDRESSES[index], "name": "P800 OAM", "serial": SERIALS[index], "uuid": UUIDS[index],
        "power_limit_watts": "400.00", "driver": "5.0.33.2", "node": str(1 - index),
    }  # fmt: skip


def xre4(index: int, address: str, name: str, serial: str, driver: str, runtime: str) -> dict[str, str]:
    named = {"index": str(index), "pci_address": address, "name": name, "serial": serial, "node": str(index)}
    return {**named, "driver": driver, "runtime": runtime}


def said(*figures: str) -> dict[str, str]:
    return dict.fromkeys(figures, "the tool says 'N/A'")


XRE5 = {"driver": "5.0.33.2", "runtime": "5.0.33"}
P800 = ((2051 * MIB, 98304 * MIB, 17.0, 112.0, 39.0), (77120 * MIB, 98304 * MIB, 99.0, 371.0, 58.0))
P800_HALF_TOLD = (P800[0], (77120 * MIB, 98304 * MIB, None, None, None))
P800_MISSING = said("utilisation_percent", "power_watts", "temperature_celsius")
K200_PLACE, R200_PLACES = "0000:06:00.0", ("0000:01:00.0", "0000:01:01.0")
K200_SERIAL, R200_SERIAL = "0200210711000123", "02K00Y6300V00031"
NOT_TOLD = {"power_watts": "the tool says '-1'", "temperature_celsius": "the tool says 'N/A'"}
READ: dict[str, tuple[Callable[[str], list[Reading]], tuple[Reading, ...]]] = {
    "machine_p800": (parse_machine, tuple(
        Reading(place, *P800[at], properties=machine(at, place, SERIALS[at], "P800 OAM", "1.0:2.7:1.40.1.8"))
        for at, place in enumerate(ADDRESSES)
    )),
    "machine_k200_milliwatts": (parse_machine, tuple(
        Reading(
            f"{K200_SERIAL}/{at}", *figures,
            properties=machine(at, K200_PLACE, K200_SERIAL, "K200", "1.0:1.5:2.2.3", str(at)),
        )
        for at, figures in enumerate(((504 * MIB, 8064 * MIB, 12.0, 61.5, 47.0), (0, 8064 * MIB, 0.0, 61.5, 49.0)))
    )),
    "machine_r200_sriov": (parse_machine, (
        Reading(
            R200_PLACES[0], 0, 13568 * MIB, 0.0, 28.0, 51.0,
            properties=machine(0, R200_PLACES[0], R200_SERIAL, "R200-PF", "1.2:2:2.2"),
        ),
        Reading(
            R200_PLACES[1], 17 * MIB, 4006 * MIB, 3.0, missing=NOT_TOLD,
            properties=machine(1, R200_PLACES[1], R200_SERIAL, "R200-VF-5G", "1.2:2:2.2"),
        ),
    )),
    "query_p800": (parse_query, (
        Reading(ADDRESSES[0], 2051 * MIB, 98304 * MIB, 17.0, 118.5, 41.0, properties=query(0)),
        Reading(
            ADDRESSES[1], 77120 * MIB, 98304 * MIB, None, 118.5, 41.0, missing=said("utilisation_percent"),
            properties=query(1),
        ),
    )),
    **{
        name: (parse_table, (
            Reading(ADDRESSES[0], *P800_HALF_TOLD[0], properties=p800(0) | versions),
            Reading(ADDRESSES[1], *P800_HALF_TOLD[1], missing=P800_MISSING, properties=p800(1) | versions),
        ))
        for name, versions in (("table_p800", XRE5), ("table_p800_alias_container", {}))
    },
    "table_xre4_8_columns": (parse_table, (
        *(
            Reading(
                str(at), used_mib * MIB, 8064 * MIB, percent, missing=NO_COLUMN,
                properties=xre4(at, K200_PLACE, "K200", K200_SERIAL, "4.0.9", "4.0"),
            )
            for at, (used_mib, percent) in enumerate(((504, 12.0), (0, 0.0)))
        ),
        Reading(
            "0001:03:00.0", None, 8064 * MIB, missing={**said("used_bytes", "utilisation_percent"), **NO_COLUMN},
            properties=xre4(2, "0001:03:00.0", "K100", "0200210711000777", "4.0.9", "4.0"),
        ),
    )),
    "table_xre4_14_columns": (parse_table, (
        Reading(
            "0000:53:00.0", 28001 * MIB, 32768 * MIB, 94.0, 118.0, 47.0,
            properties=xre4(0, "0000:53:00.0", "R300", R200_SERIAL, "4.0.25", "4.0.25"),
        ),
        Reading(
            "0000:56:00.0", 0, 32768 * MIB, 0.0, 71.0, None, missing=said("temperature_celsius"),
            properties=xre4(1, "0000:56:00.0", "R300", "02K00Y6300V00032", "4.0.25", "4.0.25"),
        ),
    )),
}  # fmt: skip
RECORDED = tuple(Recorded(parse, transcript(name), readings) for name, (parse, readings) in READ.items())


# --- with one thing changed ------------------------------------------------------------------------------------------

MACHINE, QUERY, TABLE, XRE4, OLD, K200 = (
    transcript(name)
    for name in ("machine_p800", "query_p800", "table_p800", "table_xre4_14_columns", "table_xre4_8_columns",
                 "machine_k200_milliwatts")
)  # fmt: skip
BLANK = " " * 79 + "\n"
RULE = "+-------------------------------+----------------------+----------------------+\n"
SECOND_CARD = "|   1  P800"


def but(name: str, at: int | None = None, without: str = "", **changes: Any) -> tuple[Reading, ...]:
    """The readings of a transcript with other fields, of one card or of all; `properties` are added or left out."""
    readings = list(READ[name][1])
    for index in range(len(readings)) if at is None else (at,):
        card = readings[index]
        kept = {key: value for key, value in card.properties.items() if key not in without.split()}
        fields = {**changes, "properties": kept | changes.get("properties", {})}
        readings[index] = msgspec.structs.replace(card, **fields)
    return tuple(readings)


def watts(printed: str, power: float | None) -> tuple[Recorded, Recorded]:
    """Milliwatts in a column of watts are told by their size."""
    unclear = {"power_watts": f"the tool says '{printed}', which may be watts or milliwatts"} if power is None else {}
    return (
        Recorded(
            parse_machine, changed(K200, " 61500 ", f" {printed} "),
            but("machine_k200_milliwatts", power_watts=power, missing=unclear),
        ),
        Recorded(
            parse_table, changed(XRE4, "      118 |", f" {printed} |"),
            but("table_xre4_14_columns", 0, power_watts=power, missing=unclear),
        ),
    )  # fmt: skip


IN_ERROR = "3 uncorrectable memory errors since it was started: it needs a reset"
ECC = "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 3\n    Temperature\n"
VARIANTS = (
    Recorded(parse_machine, changed(MACHINE, "\n", " 17 new\n"), READ["machine_p800"][1]),  # words of a new release
    *(variant for printed, power in (("118", 118.0), ("1000", 1000.0), ("25000", 25.0), ("61500.5", 61.5005),
                                     ("1200", None), ("1000.5", None)) for variant in watts(printed, power)),
    # a card in error says so
    Recorded(
        parse_table, changed(XRE4, "/dev/xpu0  |     N |", "/dev/xpu0  |     E |"),
        but("table_xre4_14_columns", 0, properties={"problem": "xpu_smi says that its state is E"}),
    ),
    Recorded(
        parse_table, changed(TABLE, "|                    0 |", "|                    3 |", 1),
        but("table_p800", 0, properties={"problem": IN_ERROR}),
    ),
    Recorded(
        parse_query, changed(QUERY, "    Temperature\n", ECC, 1),
        but("query_p800", 0, properties={"problem": IN_ERROR}),
    ),
    # a table ends without processes, or has them at once
    Recorded(parse_table, TABLE.partition(BLANK)[0], READ["table_p800"][1]),
    Recorded(parse_table, changed(TABLE, BLANK, ""), READ["table_p800"][1]),
    # versions that are not told take no card away, and in a container of other names the driver is not this vendor's
    *(Recorded(
        parse_table, changed(OLD, "Driver Version: 4.0.9", line), but("table_xre4_8_columns", without="driver runtime"),
      ) for line in ("Driver Version: ", "Driver Version:", "Version: 4.0", " Version: ")),
    Recorded(
        parse_query, changed(QUERY, "XPU-RT Version                            : 10.2", "XPU-RT Version    : N/A"),
        but("query_p800", without="driver"),
    ),
)  # fmt: skip


def moved(place: int) -> list[str]:
    """Lines of words with one added or left out before those that are read, also where others follow at the end."""
    lines = [[f'"{word}"' for word in shlex.split(line)] for line in MACHINE.splitlines()]
    added = [" ".join([*words[:place], '"0"', *words[place:]]) for words in lines]
    return [*added, *(" ".join([*words[:place], *words[place + 1 :], '"0"', '"0"']) for words in lines)]


REFUSED = (
    *(Refused(None, transcript(name)) for name in ("intel_discovery", "error_no_device", "list_p800")),
    *(Refused(None, text) for text in ("  DEVICES\n", "  DEVICES\n---\n", "XPU 0\n", "| XPU-SMI\n")),
    *(Refused(parse_machine, line + "\n") for place in range(22) for line in moved(place)),
    *(Refused(parse_machine, changed(MACHINE, old, new), quoted) for old, new, quoted in (
        (" 17 ", " ", ""),
        (" 17 ", " 17 0 ", ""),
        ('"P800 OAM"', "P800 OAM", ""),
        ('"P800 OAM"', '"P800 OAM', ""),
        ("00000000:1A:00.0", "xpu0", ""),
        ("00000000:1A:00.0 0 0", "00000000:1A:00.0 0 zero", ""),
        (" 39 0 0 0 112 ", " 39 1 0 0 112 ", ""),
        (" 2051 ", " 2051MiB ", ""),
        (" 1 1 02K", " 1 0 02K", ""),
        (" 2051 ", " 98305 ", "98305 98304"),
        (" 98304 17 ", " 98304 117 ", "98304 117"),
        ("00000000:1A", "[ERROR] no card\n00000000:1A", "[ERROR] no card"),
    )),
    Refused(parse_machine, MACHINE * 2),
    Refused(parse_machine, MACHINE + "[WARN] card 2 is lost\n", "[WARN] card 2 is lost"),
    *(Refused(parse_machine, changed(K200, old, new), f"'{cell}' as ") for old, new, cell in (
        (" 504 8064 ", " 504000000 8064000000 ", "8064000000"),
        (" 504 8064 ", " 9000.5 8064 ", "9000.5"),
        (" 8064 12 ", " 8064 112.0 ", "112.0"),
        (" 61500 ", " 61500000 ", "61500000"),
    )),
    *(Refused(parse_query, changed(QUERY, old, new), quoted) for old, new, quoted in (
        (" 2051 MiB", " 2051 MB", ""),
        (" 2051 MiB", " 2051", ""),
        ("Memory Usage", "Memory Use", ""),
        ("Power Draw", "Power", ""),
        ("XPU 00000000:B4:00.0", "XPU 00000000:1A:00.0", ""),
        ("XPU 00000000:B4:00.0", "XPU one", ""),
        ("XPU 00000000:B4:00.0\n", "", "P800 OAM"),
        (" 2051 MiB", " 98305 MiB", "'98305 MiB' as used_bytes, which no card can have"),
    )),
    *(Refused(parse_table, changed(TABLE, old, new), quoted) for old, new, quoted in (
        ("Memory-Usage |", "L3-Usage     |", ""),
        ("XPU-Util", "XPU-Load", "XPU-Load"),
        ("112W /", "112  /", ""),
        ("112W / 400W", "112W of 400W", "112W of 400W"),
        ("2051MiB", "2051   ", ""),
        ("     17%", "     17 ", ""),
        (SECOND_CARD, "|   0  P800", ""),
        ("     17%", "    117%", "'117%' as "),
        ("112W / 400W", "112000W/400W", "'112000W' as "),
        *((SECOND_CARD, inserted + SECOND_CARD, SECOND_CARD) for inserted in ("\n", " \n\n", RULE, "\n" + RULE)),
        (SECOND_CARD, "error: XPU 1 does not answer\n" + SECOND_CARD, "error: XPU 1"),
        (BLANK, "error: XPU 2 does not answer\n", "error: XPU 2"),
        (BLANK, "\nerror: XPU 2 does not answer\n", "error: XPU 2"),
    )),
    Refused(parse_table, TABLE.partition(BLANK)[0] + "\nerror: XPU 2 does not answer\n", "error: XPU 2"),
    Refused(parse_table, changed(changed(TABLE, "B4:00.0", "1A:00.0"), "|   1  ", "|   0  "), "named a device twice"),
    *(Refused(parse_table, changed(OLD, old, new), quoted) for old, new, quoted in (
        ("| UseRate |", "| Use     |", ""),
        ("504 / 8064 MB", "504 / 8064 GB", ""),
        ("504 / 8064 MB", "504 of 8064 M", ""),
        ("504 / 8064 MB", "8065 / 8064 MB", "'8065' as "),
        ("    12 %", "    12  ", ""),
        ("|     1 |", "|     0 |", ""),
        ("|     1 |", "|", ""),
        ("|    12 % |", "|", "504 / 8064 MB"),
    )),
    Refused(parse_table, changed(changed(XRE4, "| Temp |", "| ... |"), "| State |", "| ... |")),
    Refused(parse_table, changed(XRE4, "/ 32768 MB", "/ 33554432 MB"), "'33554432 MB' as "),
)  # fmt: skip


# --- real outputs ----------------------------------------------------------------------------------------------------


def cards(keys: Sequence[str], **last: object) -> dict[str, dict[str, object]]:
    """Cards by their keys, and what the last one says."""
    return {key: last if key == keys[-1] else {} for key in keys}


BUSES = [f"0000:{bus}:00.0" for bus in ("52", "55", "63", "66", "9a", "9b", "aa", "ab")]
OLD_VERSIONS = {"driver": "4.0", "runtime": "4.0"}
P800 = {"used_bytes": 0, "total_bytes": 98304 * MIB}
CAPTURES = {
    "k200_table_4dev_memused": {parse_table: {
        **{index: {"used_bytes": 504 * MIB} for index in "01"},
        **cards("23", used_bytes=0, total_bytes=8064 * MIB, power_watts=None, temperature_celsius=None, **OLD_VERSIONS),
    }},
    "r200_k100_table_xre4.0": {parse_table: cards(
        ["0000:01:00.0", "0000:06:00.0"], total_bytes=8064 * MIB, power_watts=22.0, temperature_celsius=51.0,
        utilisation_percent=0.0, **OLD_VERSIONS,
    )},
    "p800_table_3rows_5.19": {parse_table: cards(
        ["0000:03:00.0", "0000:05:00.0", "0000:a5:00.0"], **P800, power_watts=85.0, temperature_celsius=35.0,
        driver="5.19.0.0", runtime="5.19.0",
    )},
    "p800_table_8x_idle_5.0.21.26": {parse_table: cards(
        BUSES, **P800, power_watts=88.0, temperature_celsius=42.0, driver="5.0.21.26", runtime="5.0.21",
    )},
    "p800_pcie_q_id0": {parse_query: cards(
        ["0000:01:00.0"], **P800, power_watts=76.0, temperature_celsius=46.0, driver="5.0.21.26", runtime=None,
    )},
}  # fmt: skip
