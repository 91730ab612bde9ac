from __future__ import annotations

from collections.abc import Callable

import pytest
from kunlun_builders import ADDRESSES, TRANSCRIPTS, UUIDS, transcript

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

MIB = 1 << 20
PARSERS = (parse_machine, parse_query, parse_table)
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
        "power_limit_watts": "400.00", "driver": "5.0.33.2",
    }  # fmt: skip


def xre4(index: int, address: str, name: str, serial: str, driver: str, runtime: str, **more: str) -> dict[str, str]:
    named = {"index": str(index), "pci_address": address, "name": name, "serial": serial}
    return {**named, **more, "driver": driver, "runtime": runtime}


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
                properties=xre4(0, "0000:53:00.0", "R300", "02K00Y6300V00031", "4.0.25", "4.0.25", state="N"),
            ),
            Reading(
                "0000:56:00.0", 0, 32768 * MIB, 0.0, 71.0, None, missing=said("temperature_celsius"),
                properties=xre4(1, "0000:56:00.0", "R300", "02K00Y6300V00032", "4.0.25", "4.0.25", state="N"),
            ),
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_each_layout_is_read_exactly(name: str, parse: Parser, expected: list[Reading]) -> None:
    assert parse(transcript(name)) == expected


def test_every_transcript_of_a_query_that_is_used_is_read() -> None:
    names = {path.stem for path in TRANSCRIPTS.glob("*.txt")}
    assert {name for name in names if name.startswith(("machine_", "query_", "table_"))} == {
        name for name, _, _ in READ
    }


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_an_output_cut_anywhere_never_gives_a_wrong_number(name: str, parse: Parser, expected: list[Reading]) -> None:
    text = transcript(name)
    whole = {reading.properties["index" if "index" in reading.properties else "uuid"]: reading for reading in expected}
    for length in range(len(text)):
        try:
            readings = parse(text[:length])
        except UnknownLayout:
            continue
        for reading in readings:
            full = whole[reading.properties.get("index") or reading.properties["uuid"]]
            assert reading.properties == full.properties, text[:length]
            for figure in FIGURES:
                assert getattr(reading, figure) in (None, getattr(full, figure)), text[:length]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("name", ["intel_discovery", "error_no_device", "list_p800"])
def test_another_tool_another_query_and_an_error_line_are_refused(parse: Parser, name: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(transcript(name))


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text", ["", "\n", "  DEVICES\n", "  DEVICES\n---\n", "0 0 0\n", "XPU 0\n", "| XPU-SMI\n", "\x00\n"]
)
def test_nothing_and_garbage_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


@pytest.mark.parametrize(("name", "parse", "_"), READ, ids=[name for name, _, _ in READ])
def test_a_parser_refuses_the_other_layouts(name: str, parse: Parser, _: object) -> None:
    for other in PARSERS:
        if other is not parse:
            with pytest.raises(UnknownLayout):
                other(transcript(name))


def changed(name: str, old: str, new: str) -> str:
    text = transcript(name)
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_machine, changed("machine_p800", " 17 ", " ")),
        (parse_machine, changed("machine_p800", " 17 ", " 17 0 ")),
        (parse_machine, changed("machine_p800", '"P800 OAM"', "P800 OAM")),
        (parse_machine, changed("machine_p800", '"P800 OAM"', '"P800 OAM')),
        (parse_machine, changed("machine_p800", "00000000:1A:00.0", "xpu0")),
        (parse_machine, changed("machine_p800", "00000000:1A:00.0 0 0", "00000000:1A:00.0 0 zero")),
        (parse_machine, changed("machine_p800", " 39 0 0 0 112 ", " 39 1 0 0 112 ")),
        (parse_machine, changed("machine_p800", " 2051 ", " 2051MiB ")),
        (parse_machine, transcript("machine_p800") * 2),
        (parse_machine, changed("machine_p800", " 1 1 02K", " 1 0 02K")),
        (parse_machine, transcript("machine_p800") + "[WARN] card 2 is lost\n"),
        (parse_query, changed("query_p800", " 2051 MiB", " 2051 MB")),
        (parse_query, changed("query_p800", " 2051 MiB", " 2051")),
        (parse_query, changed("query_p800", "Memory Usage", "Memory Use")),
        (parse_query, changed("query_p800", "Power Draw", "Power")),
        (parse_query, changed("query_p800", "XPU 00000000:B4:00.0", "XPU 00000000:1A:00.0")),
        (parse_query, changed("query_p800", "XPU 00000000:B4:00.0", "XPU one")),
        (parse_table, changed("table_p800", "Memory-Usage |", "L3-Usage     |")),
        (parse_table, changed("table_p800", "XPU-Util", "XPU-Temp")),
        (parse_table, changed("table_p800", "112W /", "112  /")),
        (parse_table, changed("table_p800", "2051MiB", "2051   ")),
        (parse_table, changed("table_p800", "     17%", "     17 ")),
        (parse_table, changed("table_p800", "|   1  P800", "|   0  P800")),
        (parse_table, changed("table_p800", "00000000:B4:00.0", "00000000:1A:00.0").replace("|   1  ", "|   0  ")),
        (parse_table, changed("table_xre4_8_columns", "| UseRate |", "| Use     |")),
        (parse_table, changed("table_xre4_8_columns", "504 / 8064 MB", "504 / 8064 GB")),
        (parse_table, changed("table_xre4_8_columns", "504 / 8064 MB", "504 of 8064 M")),
        (parse_table, changed("table_xre4_8_columns", "    12 %", "    12  ")),
        (parse_table, changed("table_xre4_8_columns", "|     1 |", "|     0 |")),
        (parse_table, changed("table_xre4_8_columns", "|     1 |", "|")),
        (parse_table, changed("table_xre4_14_columns", "| Temp |", "| ... |").replace("| State |", "| ... |")),
    ],
)
def test_other_units_repeated_devices_and_rows_that_do_not_fit_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


def test_columns_of_xre_4_may_stand_in_another_order_with_new_ones_between() -> None:
    text = "  DEVICES\n---\n| Memory | New | SN | Model | DevID | PCI Addr | UseRate |\n---\n"
    text += "| 5 / 10 MB | x | S1 | R300 | 4 | 0000:53:00.0 | 7 % |\n---\n"
    (reading,) = parse_table(text)
    assert (reading.device_id, reading.used_bytes, reading.total_bytes) == ("0000:53:00.0", 5 * MIB, 10 * MIB)
    assert (reading.utilisation_percent, reading.properties["index"]) == (7.0, "4")


def test_the_driver_of_a_container_that_answers_to_other_names_is_not_this_vendors() -> None:
    assert all("driver" not in reading.properties for reading in parse_table(transcript("table_p800_alias_container")))
    alias = changed("query_p800", "XPU-RT Version                            : 10.2", "XPU-RT Version    : N/A")
    assert all("driver" not in reading.properties for reading in parse_query(alias))
