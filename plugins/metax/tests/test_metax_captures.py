"""The parsers over real outputs of mx-smi, which are not part of this package."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.testing import shared_file
from flagperf_metax.smi import (
    parse_board_power,
    parse_dmon,
    parse_json,
    parse_list,
    parse_memory,
    parse_table,
    parse_temperature,
    parse_version,
)

KIB, MIB = 1 << 10, 1 << 20
Parser = Callable[[str], list[Reading]]
Figures = tuple[int | None, int | None, float | None, float | None, float | None]
"""Used and total bytes, utilisation, power, temperature."""

NOTHING: Figures = (None, None, None, None, None)
C500, SLICE = "0000:37:00.0", "0000:37:00.0/sgpu-3"
UNMAPPED = [f"0000:{bus}:00.0" for bus in ("0e", "0f", "10", "12", "35", "36", "38")]
IDLE_WATTS_AND_DEGREES = {
    "0e": (57.0, 35.0), "0f": (58.0, 37.0), "10": (58.0, 36.0), "12": (60.0, 35.0), "35": (57.0, 33.0),
    "36": (56.0, 34.0), "37": (55.0, 34.0), "38": (56.0, 36.0),
}  # fmt: skip

READ: tuple[tuple[str, Parser, dict[str, Figures]], ...] = (
    ("c500_2.2.12_mxsmi_show_memory", parse_memory, {C500: (15518872 * KIB, 67108864 * KIB, None, None, None)}),
    ("c500_2.2.12_mxsmi_summary", parse_memory, {C500: (15518872 * KIB, 67108864 * KIB, None, None, None)}),
    ("c500_2.2.12_mxsmi_show_board_power", parse_board_power, {C500: (None, None, None, 62.015, None)}),
    ("c500_2.2.12_mxsmi_show_temperature", parse_temperature, {C500: (None, None, None, None, 38.5)}),
    ("c500_2.2.12_mxsmi_show_version", parse_version, {C500: NOTHING}),
    (
        "c500_2.2.12_mxsmi_j", parse_json,
        {C500: (None, None, 0.0, 61.919, 38.5), SLICE: (None, 16000 * MIB, 0.0, None, None)},
    ),
    (
        "c500_2.2.12_mxsmi_L", parse_list,
        {**dict.fromkeys([C500, *UNMAPPED], NOTHING), SLICE: (None, 16000 * MIB, None, None, None)},
    ),
    ("c500_list_L_2.2.9", parse_list, dict.fromkeys(["0000:08:00.0", "0000:3c:00.0"], NOTHING)),
    (
        "mxtop_dmon_csv_14col", parse_dmon,
        {"0000:08:00.0": (None, None, 71.0, 159.0, 45.0), "0000:09:00.0": (None, None, 12.0, 165.0, 46.0)},
    ),
    ("c500_2.0.12_table_reflowed", parse_table, {"0000:1b:00.0": (914 * MIB, 65536 * MIB, 0.0, 56.0, 35.0)}),
    ("c500_2.2.8_table_busy_edited", parse_table, {"0000:01:00.0": (32000 * MIB, 65536 * MIB, 42.0, 180.0, 55.0)}),
    (
        "c500x8_2.2.9_table_idle", parse_table,
        {f"0000:{bus}:00.0": (826 * MIB, 65536 * MIB, 0.0, *said) for bus, said in IDLE_WATTS_AND_DEGREES.items()},
    ),
    (
        "c500_2.2.12_exposure_mxsmi_plain", parse_table,
        {C500: (15155 * MIB, 65536 * MIB, 0.0, 61.0, 38.0), SLICE: (0, 16000 * MIB, 0.0, None, None)},
    ),
)  # fmt: skip
"""Capture, the function that reads it, and every card in it with exactly what it says."""

VERSIONS = {"driver": "3.8.30", "maca": "3.5.3.20", "bios": "1.33.5.0"}
SAID: tuple[tuple[str, Parser, str, dict[str, str]], ...] = (
    ("c500_2.2.12_mxsmi_show_version", parse_version, C500, {"index": "0", "name": "MXC500", **VERSIONS}),
    ("c500_2.2.12_mxsmi_show_board_power", parse_board_power, C500, {"power_limit_watts": "350.000"}),
    ("c500_2.2.12_mxsmi_j", parse_json, C500, {"index": "0", "mx_smi": "2.2.12", **VERSIONS}),
    ("c500_2.2.12_mxsmi_j", parse_json, SLICE, {"slice": "sGPU 3: 25% compute, 16000 MiB", "pci_address": C500}),
    ("c500_2.2.12_mxsmi_L", parse_list, SLICE, {"slice": "sGPU 3: 25% compute, 15.625 GiB", "pci_address": C500}),
    ("c500_2.2.12_mxsmi_L", parse_list, UNMAPPED[-1], {"index": "7", "problem": "MetaX Sysfs File Unaccessible"}),
    ("c500_list_L_2.2.9", parse_list, "0000:3c:00.0", {"index": "7", "name": "MXC500"}),
    ("c500_2.0.12_table_reflowed", parse_table, "0000:1b:00.0", {"driver": "2.2.0", "maca": "2.0", "name": "MXC500"}),
    ("c500x8_2.2.9_table_idle", parse_table, "0000:38:00.0", {"index": "7", "name": "MetaX C500", "driver": "3.4.4"}),
    ("c500_2.2.12_exposure_mxsmi_plain", parse_table, C500, {"power_limit_watts": "350", **VERSIONS}),
)
"""Capture, the function that reads it, a card, and part of what else it says of it."""

REFUSED: tuple[tuple[str, Parser], ...] = (
    ("list_L_not_available", parse_list),  # its addresses were replaced by the word `bus`
    ("c500_2.2.12_exposure_mxsmi_dmon_c_1", parse_dmon),  # columns, not csv
    ("mxtop_process_table", parse_table),
    ("c500_2.2.12_exposure_mxsmi_q", parse_memory),
    ("c500_2.2.12_mxsmi_show_pcie", parse_memory),
    *(("error_command_not_found", parse) for parse in (parse_memory, parse_json, parse_list, parse_table)),
)


def capture(name: str) -> str:
    return shared_file(__file__, f"transcripts/metax/{name}.txt").read_text()


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_a_real_output_gives_exactly_what_it_says(name: str, parse: Parser, expected: dict[str, Figures]) -> None:
    readings = parse(capture(name))
    assert {reading.device_id: figures(reading) for reading in readings} == expected
    assert len(readings) == len(expected)


def figures(reading: Reading) -> Figures:
    return (
        reading.used_bytes,
        reading.total_bytes,
        reading.utilisation_percent,
        reading.power_watts,
        reading.temperature_celsius,
    )


@pytest.mark.parametrize(("name", "parse", "device_id", "said"), SAID)
def test_a_real_output_names_card_slice_and_versions(
    name: str, parse: Parser, device_id: str, said: dict[str, str]
) -> None:
    reading = next(reading for reading in parse(capture(name)) if reading.device_id == device_id)
    assert said.items() <= reading.properties.items()


@pytest.mark.parametrize("name", ["c500_2.2.12_mxsmi_L", "c500_list_L_2.2.9"])
def test_every_uuid_of_a_real_list_stands_with_its_card_or_slice(name: str) -> None:
    text = capture(name)
    printed = re.findall(r"\(UUID: (\S+)\)", text)
    assert printed
    assert [uuid for reading in parse_list(text) if (uuid := reading.properties.get("uuid"))] == printed


def test_a_real_error_line_in_place_of_values_is_the_reason() -> None:
    (reading,) = parse_memory(capture("c500_2.2.12_mxsmi_show_pcie_slot"))
    assert reading.used_bytes is None
    assert "Sysfs error: No such file or directory" in reading.missing["used_bytes"]


@pytest.mark.parametrize(("name", "parse"), REFUSED)
def test_a_real_output_of_something_else_is_refused(name: str, parse: Parser) -> None:
    text = capture(name)
    with pytest.raises(UnknownLayout):
        parse(text)


def test_every_capture_of_a_query_of_ours_is_expected_here() -> None:
    captures = shared_file(__file__, "transcripts/metax")
    words = ("show_memory", "show_board_power", "show_temperature", "show_usage", "show_version", "dmon", "table")
    exact = ("mxsmi_j", "mxsmi_L", "mxsmi_plain")
    names = [path.stem for path in captures.glob("*.txt") if not path.name.endswith(".source.txt")]
    ours = {
        name
        for name in names
        if (any(word in name for word in words) and "pptable" not in name) or name.endswith(exact) or "list_L" in name
    }
    assert ours <= {name for name, _, _ in READ} | {name for name, _ in REFUSED}
