"""Two ways to read a card's memory; on no machine of ours is the better one there."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.api import Availability, Device, Machine, MemoryProbe, Reading

GIB = 1 << 30


class AcmeSmiProbe(MemoryProbe):
    vendor = "acme"
    name = "acme-smi"

    def available(self, machine: Machine) -> Availability:
        return Availability(False, "acme-smi is not installed")

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        raise NotImplementedError


class AcmeSysfsProbe(MemoryProbe):
    """A card uses 1 GiB at rest and 3 GiB under work."""

    vendor = "acme"
    name = "acme-sysfs"

    def available(self, machine: Machine) -> Availability:
        return Availability(True)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        used_bytes = 1 * GIB if launcher_pid is None else 3 * GIB
        return [Reading(device.id, used_bytes, 16 * GIB, power_watts=75.0) for device in devices]
