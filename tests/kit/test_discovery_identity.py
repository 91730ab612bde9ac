from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Machine
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import ToolFailed
from flagperf.kit import Card, make_devices

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
