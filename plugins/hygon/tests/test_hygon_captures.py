"""Published outputs of real tools, which are not part of this repository: they are read where they lie beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.testing import shared_file
from flagperf_hygon.smi import driver_version, parse_csv, parse_json, parse_table, parse_text

MIB = 1 << 20
PARSERS = (parse_json, parse_csv, parse_text, parse_table)
Parser = Callable[[str], list[Reading]]

READ: list[tuple[str, Parser, int, dict[str, object]]] = [
    # name, parser, number of cards, what the last card says
    ("dcu_table_8x_busy_bogus_power", parse_table, 8, {"temperature_celsius": 68.0, "power_watts": None}),
    ("dcu_table_8x_idle_280W", parse_table, 8, {"power_watts": 36.0, "utilisation_percent": 0.0}),
    ("dcu_table_8x_mixed_400W", parse_table, 8, {"power_watts": 107.0, "utilisation_percent": 0.0}),
    ("hcu_table_4x_busy_manual_300W", parse_table, 4, {"power_watts": 254.0, "utilisation_percent": 81.7}),
    ("hcu_table_8x_dec_enc_high_800W", parse_table, 8, {"power_watts": 161.0, "temperature_celsius": 36.0}),
    ("hcu_table_8x_idle_400W", parse_table, 8, {"power_watts": 115.0, "temperature_celsius": 58.0}),
    ("hcu_table_8x_vram94", parse_table, 8, {"power_watts": 109.0, "used_bytes": None}),
    ("k100x8_dtk23.10_table_idle", parse_table, 8, {"power_watts": 96.0, "temperature_celsius": 54.0}),
    ("json_showbus", parse_json, 2, {"used_bytes": None}),
    ("json_showmemavailable", parse_json, 2, {"used_bytes": None, "total_bytes": None}),
    ("json_showmeminfo_vram", parse_json, 2, {"used_bytes": 3 * MIB, "total_bytes": 65520 * MIB}),
    ("json_showuse", parse_json, 2, {"utilisation_percent": 27.5}),
    ("k100ai_text_showid_8x", parse_text, 8, {"used_bytes": None}),
    ("k100ai_text_showproductname_grep_card", parse_text, 1, {"used_bytes": None}),
    ("text_power_util_bandwidth_1x", parse_text, 1, {"power_watts": 412.0, "utilisation_percent": 88.5}),
    ("text_showuse_showmeminfo_8x", parse_text, 8, {"used_bytes": 5042 * MIB, "utilisation_percent": 0.0}),
    ("text_z100sm_4x_driver_6.2.26", parse_text, 4, {"total_bytes": 16368 * MIB, "used_bytes": None}),
]
PROPERTIES = {
    "json_showbus": {"pci_address": "0000:36:00.0"},
    "k100ai_text_showid_8x": {"pci_id": "6210"},
    "k100ai_text_showproductname_grep_card": {"name": "K100_AI"},
    "text_z100sm_4x_driver_6.2.26": {"name": "Z100SM", "driver": "6.2.26"},
}
REFUSED = [
    "error_command_not_found",
    "error_rocminfo_kfd_missing",
    "error_rocminfo_kfd_permission",
    "gpustack_detect_output_hygon_k100ai",
    "k100ai_text_showclocks_1x",
    "k100ai_text_showtopo_8x",
    "lspci_nn_4x_6210",
    "rocminfo_bw_excerpt",
    "rocminfo_z100_probe",
]
"""Outputs of other queries and tools, and errors."""


def capture(name: str) -> str:
    return shared_file(__file__, f"transcripts/hygon/{name}.txt").read_text()


@pytest.mark.parametrize(("name", "parse", "num_cards", "last"), READ, ids=[each[0] for each in READ])
def test_a_captured_output_is_read(name: str, parse: Parser, num_cards: int, last: dict[str, object]) -> None:
    readings = parse(capture(name))
    assert [reading.device_id for reading in readings] == [str(number) for number in range(num_cards)]
    assert {figure: getattr(readings[-1], figure) for figure in last} == last
    assert PROPERTIES.get(name, {}).items() <= readings[-1].properties.items()


@pytest.mark.parametrize("name", REFUSED)
def test_a_captured_output_of_something_else_is_refused(name: str) -> None:
    text = capture(name)
    for parse in PARSERS:
        with pytest.raises(UnknownLayout):
            parse(text)


def test_the_captured_driver_version_is_read() -> None:
    assert driver_version(capture("version_lines")) == "6.3.32-V1.6.0"


def test_power_of_busy_cards_that_is_no_idle_cards_is_kept() -> None:
    readings = parse_table(capture("dcu_table_8x_mixed_400W"))
    assert [reading.power_watts for reading in readings[:4]] == [259.0, 251.0, 245.0, 249.0]
