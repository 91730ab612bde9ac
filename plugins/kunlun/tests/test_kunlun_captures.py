"""Published outputs of real tools, which are not part of this repository: they are read where they lie beside it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.testing import shared_file
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

MIB = 1 << 20
PARSERS = (parse_machine, parse_query, parse_table)
Parser = Callable[[str], list[Reading]]

READ: list[tuple[str, Parser, list[str], dict[str, object]]] = [
    # name, parser, keys, what the last device says
    (
        "k200_table_4dev_memused",
        parse_table,
        ["0", "1", "2", "3"],
        {"used_bytes": 0, "total_bytes": 8064 * MIB, "power_watts": None, "temperature_celsius": None},
    ),
    (
        "r200_k100_table_xre4.0",
        parse_table,
        ["0000:01:00.0", "0000:06:00.0"],
        {"total_bytes": 8064 * MIB, "power_watts": 22.0, "temperature_celsius": 51.0, "utilisation_percent": 0.0},
    ),
    (
        "p800_table_3rows_5.19",
        parse_table,
        ["0000:03:00.0", "0000:05:00.0", "0000:a5:00.0"],
        {"used_bytes": 0, "total_bytes": 98304 * MIB, "power_watts": 85.0, "temperature_celsius": 35.0},
    ),
    (
        "p800_table_8x_idle_5.0.21.26",
        parse_table,
        [f"0000:{bus}:00.0" for bus in ("52", "55", "63", "66", "9a", "9b", "aa", "ab")],
        {"used_bytes": 0, "total_bytes": 98304 * MIB, "power_watts": 88.0, "temperature_celsius": 42.0},
    ),
    (
        "p800_pcie_q_id0",
        parse_query,
        ["0000:01:00.0"],
        {"used_bytes": 0, "total_bytes": 98304 * MIB, "power_watts": 76.0, "temperature_celsius": 46.0},
    ),
]
VERSIONS = {
    "k200_table_4dev_memused": ("4.0", "4.0"),
    "r200_k100_table_xre4.0": ("4.0", "4.0"),
    "p800_table_3rows_5.19": ("5.19.0.0", "5.19.0"),
    "p800_table_8x_idle_5.0.21.26": ("5.0.21.26", "5.0.21"),
    "p800_pcie_q_id0": ("5.0.21.26", None),
}
REFUSED = [
    "error_xpurt_device_abnormal",
    "error_xpurt_no_device",
    "flagperf_r300x8_awk_columns",
    "ls_dev_xpu",
    "lsmod_kunlun",
    "lspci_r200_k100",
    "m_column_list",
    "p800_list_L_8x",
    "p800_m_8x_one_busy_generated",
    "r200_sriov_table_xre4.0_elided",
]
"""Outputs of other queries and tools, errors, a table whose columns were left out, and addresses that are none."""


def capture(name: str) -> str:
    return shared_file(__file__, f"transcripts/kunlun/{name}.txt").read_text()


@pytest.mark.parametrize(("name", "parse", "keys", "last"), READ, ids=[each[0] for each in READ])
def test_a_captured_output_is_read(name: str, parse: Parser, keys: list[str], last: dict[str, object]) -> None:
    readings = parse(capture(name))
    assert [reading.device_id for reading in readings] == keys
    assert {figure: getattr(readings[-1], figure) for figure in last} == last
    said = readings[-1].properties
    assert (said["driver"], said.get("runtime")) == VERSIONS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_captured_output_of_something_else_is_refused(name: str) -> None:
    text = capture(name)
    for parse in PARSERS:
        with pytest.raises(UnknownLayout):
            parse(text)


def test_machine_lines_are_read_once_their_made_up_addresses_are_repaired() -> None:
    """The lines were generated with bus numbers of three digits; all else in them is as the tool prints it."""
    text = re.sub(r"^00000000:0([0-9A-F]{2}):", r"00000000:\1:", capture("p800_m_8x_one_busy_generated"), flags=re.M)
    readings = parse_machine(text)
    assert [reading.properties["index"] for reading in readings] == [str(index) for index in range(8)]
    used = [reading.used_bytes for reading in readings]
    assert used == [0, 0, 88986 * MIB, 0, 0, 0, 0, 0]
    assert {(each.total_bytes, each.power_watts, each.properties["name"]) for each in readings} == {
        (98304 * MIB, 86.0, "P800 OAM")
    }


def test_memory_in_use_on_one_board_belongs_to_its_two_devices() -> None:
    readings = parse_table(capture("k200_table_4dev_memused"))
    assert [reading.used_bytes for reading in readings] == [504 * MIB, 504 * MIB, 0, 0]
