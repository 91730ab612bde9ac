from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Machine, Reading
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import ToolFailed, UnknownLayout
from flagperf.kit import Card, Cell, cell_number, make_devices, read_cells, whole_lines


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("58.0C", "C", 58.0),
        (" 98304 MiB ", "MiB", 98304.0),
        ("34.2%", "%", 34.2),
        ("65520", "", 65520.0),
        ("0", "", 0.0),
        *((text, "W", None) for text in ("", " ", "N/A", "NA", "Unknown", "[N/A]", "-1", "-1W", "-", "N/A W")),
    ],
)
def test_a_number_is_read_with_its_unit_and_nothing_is_no_number(text: str, unit: str, number: float | None) -> None:
    assert cell_number(text, unit) == number


@pytest.mark.parametrize("text", ["58.0", "58.0F", "fiftyC", "5 8C", "-7C", "1e3C", "58.C", "0x1C", "58,0C"])
def test_another_unit_or_no_number_is_an_unknown_layout(text: str) -> None:
    with pytest.raises(UnknownLayout, match="a cell that should be"):
        cell_number(text, "C")


def test_cells_become_one_reading_in_base_units() -> None:
    cells = {
        "used_bytes": Cell("3", scale=1 << 20),
        "power_watts": Cell("0.5W", "W"),
        "total_bytes": Cell("N/A", "MiB"),
    }
    assert read_cells("7", cells, {"name": "A1", "uuid": "N/A", "serial": "", "bus": "unknown"}) == Reading(
        "7",
        used_bytes=3 << 20,
        power_watts=0.5,
        missing={"total_bytes": "the tool says 'N/A'"},
        properties={"name": "A1"},
    )
    assert isinstance(read_cells("7", cells).used_bytes, int)


def test_memory_of_a_card_with_a_total_of_0_is_not_known() -> None:
    reading = read_cells("7", {"used_bytes": Cell("0"), "total_bytes": Cell("0"), "power_watts": Cell("0")})
    assert (reading.used_bytes, reading.total_bytes, reading.power_watts) == (None, None, 0.0)
    assert reading.missing == dict.fromkeys(("used_bytes", "total_bytes"), "the tool says a total of 0")


def test_a_point_that_may_group_the_digits_of_memory_is_refused() -> None:
    for text in ("1024.00 MiB", "1024.000 MiB", "1024.0MiB"):
        assert read_cells("7", {"total_bytes": Cell(text, "MiB", scale=1 << 20)}).total_bytes == 1 << 30
    assert read_cells("7", {"total_bytes": Cell("15.625", scale=1 << 30)}).total_bytes == 16000 << 20
    with pytest.raises(UnknownLayout, match=r"group its digits; the line: '98\.304'"):
        read_cells("7", {"total_bytes": Cell("98.304", scale=1 << 20)})


@pytest.mark.parametrize("text", ["", "card0,655", "card0,65520\ncard1,6"])
def test_an_output_that_ends_within_a_line_is_refused(text: str) -> None:
    with pytest.raises(UnknownLayout, match="ends within a line"):
        whole_lines(text)
    assert whole_lines("\na b \nc\n") == ["", "a b ", "c"]


ADDRESS = "0000:06:00.0"


def test_two_devices_on_one_address_are_told_apart_by_an_identity_of_their_own(tmp_path: Path) -> None:
    cards = [Card(chip, ("A2",), pci_address=ADDRESS, identity=f"S7/{chip}") for chip in (0, 1)]
    devices = make_devices(CpuBackend(), Machine(tmp_path, {}), cards)
    assert [(device.id, device.pci_address) for device in devices] == [("S7/0", ADDRESS), ("S7/1", ADDRESS)]


def test_without_one_they_are_refused(tmp_path: Path) -> None:
    cards = [Card(chip, ("A2",), pci_address=ADDRESS) for chip in (0, 1)]
    with pytest.raises(ToolFailed, match="have one id"):
        make_devices(CpuBackend(), Machine(tmp_path, {}), cards)


def test_a_slice_is_called_by_its_part_and_keeps_the_model_of_its_card(tmp_path: Path) -> None:
    card = Card(0, ("A2",), uuid="GPU-1", slice="half")
    (device,) = make_devices(CpuBackend(), Machine(tmp_path, {}), [card])
    assert (device.model, device.short_name, device.slice) == ("A2", "A2 (half)", "half")
