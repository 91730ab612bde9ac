"""The parsers over real outputs of mx-smi, which are not part of this package."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from metax_builders import shared_file

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout
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

EXPECTED: tuple[tuple[str, Callable[[str], list[Reading]], int | None], ...] = (
    ("c500_2.2.12_mxsmi_show_memory", parse_memory, 1),
    ("c500_2.2.12_mxsmi_summary", parse_memory, 1),
    ("c500_2.2.12_mxsmi_show_board_power", parse_board_power, 1),
    ("c500_2.2.12_mxsmi_show_temperature", parse_temperature, 1),
    ("c500_2.2.12_mxsmi_show_version", parse_version, 1),
    ("c500_2.2.12_mxsmi_j", parse_json, 2),
    ("c500_2.2.12_mxsmi_L", parse_list, 9),
    ("c500_list_L_2.2.9", parse_list, 2),
    ("list_L_not_available", parse_list, None),  # its addresses were replaced by the word `bus`
    ("mxtop_dmon_csv_14col", parse_dmon, 2),
    ("c500_2.2.12_exposure_mxsmi_dmon_c_1", parse_dmon, None),  # columns, not csv
    ("c500_2.0.12_table_reflowed", parse_table, 1),
    ("c500_2.2.8_table_busy_edited", parse_table, 1),
    ("c500x8_2.2.9_table_idle", parse_table, 8),
    ("c500_2.2.12_exposure_mxsmi_plain", parse_table, 2),
    ("mxtop_process_table", parse_table, None),
    ("c500_2.2.12_exposure_mxsmi_q", parse_memory, None),
    ("c500_2.2.12_mxsmi_show_pcie", parse_memory, None),
    ("error_command_not_found", parse_memory, None),
    ("error_command_not_found", parse_json, None),
    ("error_command_not_found", parse_list, None),
    ("error_command_not_found", parse_table, None),
)
"""Capture, the function that reads it, and how many readings it holds; None where it must be refused."""


def capture(name: str) -> str:
    return shared_file(f"transcripts/metax/{name}.txt").read_text()


@pytest.mark.parametrize(("name", "parse", "num_readings"), EXPECTED)
def test_a_real_output_is_read_or_refused(
    name: str, parse: Callable[[str], list[Reading]], num_readings: int | None
) -> None:
    text = capture(name)
    if num_readings is None:
        with pytest.raises(UnknownLayout):
            parse(text)
    else:
        readings = parse(text)
        assert len(readings) == num_readings
        assert len({reading.device_id for reading in readings}) == num_readings


def test_what_one_card_says_in_several_outputs_agrees() -> None:
    """Taken within seconds of each other, on an idle card."""
    readings = {
        parse: parse(capture(name))[0]
        for name, parse, num_readings in EXPECTED
        if name.startswith("c500_2.2.12") and num_readings is not None
    }
    assert len({reading.device_id for reading in readings.values()}) == 1
    tolerances = {"used_bytes": 1 << 20, "power_watts": 2.0, "temperature_celsius": 1.0}
    for figure in FIGURES:
        values = [value for reading in readings.values() if (value := getattr(reading, figure)) is not None]
        assert values, figure
        assert max(values) - min(values) <= tolerances.get(figure, 0.0), figure


def test_a_real_error_line_in_place_of_values_is_the_reason() -> None:
    (reading,) = parse_memory(capture("c500_2.2.12_mxsmi_show_pcie_slot"))
    assert reading.used_bytes is None
    assert "Sysfs error: No such file or directory" in reading.missing["used_bytes"]


def test_every_capture_of_a_query_of_ours_is_expected_here() -> None:
    captures = shared_file("transcripts/metax")
    words = ("show_memory", "show_board_power", "show_temperature", "show_usage", "show_version", "dmon", "table")
    exact = ("mxsmi_j", "mxsmi_L", "mxsmi_plain")
    names = [path.stem for path in captures.glob("*.txt") if not path.name.endswith(".source.txt")]
    ours = {
        name for name in names
        if (any(word in name for word in words) and "pptable" not in name) or name.endswith(exact) or "list_L" in name
    }  # fmt: skip
    assert ours <= {name for name, _, _ in EXPECTED}
