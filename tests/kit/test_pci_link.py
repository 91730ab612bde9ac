"""Generation and width of a card's PCI link, from the files that the kernel has for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Machine
from flagperf.builtin.cpu import CpuBackend
from flagperf.kit import Card, link_bytes_per_second, make_devices, pci_link
from flagperf.testing import MachineFolder

ADDRESS = "0000:07:00.0"


def link_of(folder: Path, now: str, width: str, most: str = "") -> dict[str, str]:
    machine = MachineFolder(folder).pci(ADDRESS, "10ab", "0a01", "0302")
    files = {"current_link_speed": now, "current_link_width": width, "max_link_speed": most}
    for name, text in files.items():
        if text:
            machine.file(f"/sys/bus/pci/devices/{ADDRESS}/{name}", f"{text}\n")
    return pci_link(machine.machine(), ADDRESS)


@pytest.mark.parametrize(
    ("now", "width", "most", "expected"),
    [
        ("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", {"pcie": "Gen4 x16"}),
        ("8 GT/s", "8", "", {"pcie": "Gen3 x8"}),
        ("2.5 GT/s PCIe", "16", "32.0 GT/s PCIe", {"pcie": "Gen5 x16", "pcie_now": "Gen1 x16"}),
        ("Unknown speed", "16", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "63", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "255", "", {}),
        ("16.0 GT/s PCIe", "0", "", {}),
        ("99.0 GT/s PCIe", "16", "", {}),
        ("", "16", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "", "", {}),
        ("16.0 GT/s PCIe", "wide", "", {}),
    ],
)
def test_what_sysfs_says_and_nothing_where_it_does_not(
    tmp_path: Path, now: str, width: str, most: str, expected: dict[str, str]
) -> None:
    assert link_of(tmp_path, now, width, most) == expected
    assert pci_link(MachineFolder(tmp_path).machine(), "") == pci_link(Machine(tmp_path / "none"), ADDRESS) == {}


@pytest.mark.parametrize(
    ("link", "rate"),
    [("Gen4 x16", 31.5e9), ("Gen3 x16", 15.76e9), ("Gen5 x8", 31.5e9), ("", None), ("Gen9 x16", None), ("Gen4", None)],
)
def test_the_rate_is_that_of_one_direction(link: str, rate: float | None) -> None:
    assert link_bytes_per_second(link) == (rate and pytest.approx(rate, rel=1e-3))


def test_devices_have_it_beside_what_the_vendor_says(tmp_path: Path) -> None:
    link_of(tmp_path, "16.0 GT/s PCIe", "16")
    card = Card(0, ("A1",), pci_address=ADDRESS, properties={"serial": "7"})
    (device,) = make_devices(CpuBackend(), MachineFolder(tmp_path).machine(), [card])
    assert device.properties == {"pcie": "Gen4 x16", "serial": "7"}
