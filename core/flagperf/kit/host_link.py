"""The PCI link of a card to its host: generation and width, as sysfs shows them."""

from __future__ import annotations

import re

from flagperf.api.machine import Machine

GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s -> generation."""

LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second of a lane in one direction, after its encoding."""

WIDTHS = (1, 2, 4, 8, 12, 16, 32)


def pci_link(machine: Machine, address: str) -> dict[str, str]:
    """Properties of a Device: `pcie`, the highest speed of the card on the lanes that are connected (`Gen4 x16`), and
    `pcie_now` where its speed is another at the moment, since an idle card often slows its link down. Nothing where
    sysfs does not say: in virtual machines, and for functions that have no link of their own."""
    folder = f"/sys/bus/pci/devices/{address}"
    now, most = (_generation(machine.read(f"{folder}/{name}_link_speed")) for name in ("current", "max"))
    lanes = _lanes(machine.read(f"{folder}/current_link_width"))
    if not address or not now or not lanes:
        return {}
    highest = f"Gen{max(now, most)} x{lanes}"
    return {"pcie": highest} if now >= most else {"pcie": highest, "pcie_now": f"Gen{now} x{lanes}"}


def link_bytes_per_second(link: str) -> float | None:
    """In one direction, of a link as `pci_link` writes it."""
    found = re.fullmatch(r"Gen(\d) x(\d+)", link)
    lane = LANE_BYTES.get(int(found[1])) if found else None
    return None if found is None or lane is None else lane * int(found[2])


def _generation(text: str | None) -> int:
    """Of `16.0 GT/s PCIe` and the like; older kernels write `16 GT/s`. 0 for `Unknown speed`."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", (text or "").strip())
    return GENERATIONS.get(f"{float(found[1]):.1f}", 0) if found else 0


def _lanes(text: str | None) -> int:
    """0 for the 63 and 255 of functions without a link of their own."""
    said = (text or "").strip()
    return int(said) if said.isdecimal() and int(said) in WIDTHS else 0
