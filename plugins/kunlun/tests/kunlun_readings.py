"""Transcript -> the function that reads it, and exactly what it says."""

from __future__ import annotations

from collections.abc import Callable

from kunlun_builders import ADDRESSES, UUIDS

from flagperf.api import Reading
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

MIB = 1 << 20
SERIALS = ("02K15K700AB00417", "02K15K700AB00522")
NO_COLUMN = {
    "power_watts": "this release's table has no column Power(W)",
    "temperature_celsius": "this release's table has no column Temp",
}
Parser = Callable[[str], list[Reading]]


def machine(index: int, address: str, serial: str, name: str, chip: str, firmware: str) -> dict[str, str]:
    return {
        "index": str(index), "pci_address": address, "name": name, "serial": serial, "chip": chip,
        "firmware": firmware,
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
P800_FIGURES = (
    (2051 * MIB, 98304 * MIB, 17.0, 112.0, 39.0),
    (77120 * MIB, 98304 * MIB, None, None, None),
)
P800_MISSING = said("utilisation_percent", "power_watts", "temperature_celsius")
FIRMWARE = "1.0:2.7:1.40.1.8"
READ: list[tuple[str, Parser, list[Reading]]] = [
    (
        "machine_p800",
        parse_machine,
        [
            Reading(
                ADDRESSES[0], *P800_FIGURES[0],
                properties=machine(0, ADDRESSES[0], SERIALS[0], "P800 OAM", "0", FIRMWARE),
            ),
            Reading(
                ADDRESSES[1], 77120 * MIB, 98304 * MIB, 99.0, 371.0, 58.0,
                properties=machine(1, ADDRESSES[1], SERIALS[1], "P800 OAM", "0", FIRMWARE),
            ),
        ],
    ),
    (
        "machine_k200_milliwatts",
        parse_machine,
        [
            Reading(
                "0200210711000123/0", 504 * MIB, 8064 * MIB, 12.0, 61.5, 47.0,
                properties=machine(0, "0000:06:00.0", "0200210711000123", "K200", "0", "1.0:1.5:2.2.3"),
            ),
            Reading(
                "0200210711000123/1", 0, 8064 * MIB, 0.0, 61.5, 49.0,
                properties=machine(1, "0000:06:00.0", "0200210711000123", "K200", "1", "1.0:1.5:2.2.3"),
            ),
        ],
    ),
    (
        "machine_r200_sriov",
        parse_machine,
        [
            Reading(
                "0000:01:00.0", 0, 13568 * MIB, 0.0, 28.0, 51.0,
                properties=machine(0, "0000:01:00.0", "02K00Y6300V00031", "R200-PF", "0", "1.2:2:2.2"),
            ),
            Reading(
                "0000:01:01.0", 17 * MIB, 4006 * MIB, 3.0, None, None,
                missing={"power_watts": "the tool says '-1'", "temperature_celsius": "the tool says 'N/A'"},
                properties=machine(1, "0000:01:01.0", "02K00Y6300V00031", "R200-VF-5G", "0", "1.2:2:2.2"),
            ),
        ],
    ),
    (
        "query_p800",
        parse_query,
        [
            Reading(ADDRESSES[0], 2051 * MIB, 98304 * MIB, 17.0, 118.5, 41.0, properties=query(0)),
            Reading(
                ADDRESSES[1], 77120 * MIB, 98304 * MIB, None, 118.5, 41.0, missing=said("utilisation_percent"),
                properties=query(1),
            ),
        ],
    ),
    (
        "table_p800",
        parse_table,
        [
            Reading(ADDRESSES[0], *P800_FIGURES[0], properties=p800(0) | XRE5),
            Reading(ADDRESSES[1], *P800_FIGURES[1], missing=P800_MISSING, properties=p800(1) | XRE5),
        ],
    ),
    (
        "table_p800_alias_container",
        parse_table,
        [
            Reading(ADDRESSES[0], *P800_FIGURES[0], properties=p800(0)),
            Reading(ADDRESSES[1], *P800_FIGURES[1], missing=P800_MISSING, properties=p800(1)),
        ],
    ),
    (
        "table_xre4_8_columns",
        parse_table,
        [
            Reading(
                "0", 504 * MIB, 8064 * MIB, 12.0, missing=NO_COLUMN,
                properties=xre4(0, "0000:06:00.0", "K200", "0200210711000123", "4.0.9", "4.0"),
            ),
            Reading(
                "1", 0, 8064 * MIB, 0.0, missing=NO_COLUMN,
                properties=xre4(1, "0000:06:00.0", "K200", "0200210711000123", "4.0.9", "4.0"),
            ),
            Reading(
                "0001:03:00.0", None, 8064 * MIB, missing={**said("used_bytes", "utilisation_percent"), **NO_COLUMN},
                properties=xre4(2, "0001:03:00.0", "K100", "0200210711000777", "4.0.9", "4.0"),
            ),
        ],
    ),
    (
        "table_xre4_14_columns",
        parse_table,
        [
            Reading(
                "0000:53:00.0", 28001 * MIB, 32768 * MIB, 94.0, 118.0, 47.0,
                properties=xre4(0, "0000:53:00.0", "R300", "02K00Y6300V00031", "4.0.25", "4.0.25"),
            ),
            Reading(
                "0000:56:00.0", 0, 32768 * MIB, 0.0, 71.0, None, missing=said("temperature_celsius"),
                properties=xre4(1, "0000:56:00.0", "R300", "02K00Y6300V00032", "4.0.25", "4.0.25"),
            ),
        ],
    ),
]  # fmt: skip
