from __future__ import annotations

import os
from collections.abc import Sequence

from flagperf.api import Availability, Device, Machine, MemoryProbe, Reading
from flagperf_nova.driver import MACHINE, used_bytes


class NovaProbe(MemoryProbe):
    vendor = "nova"
    name = "nova-driver"
    figures = ("used_bytes", "total_bytes")

    def available(self, machine: Machine) -> Availability:
        return Availability(MACHINE in machine.environ, f"{MACHINE} is not set")

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        folder = os.environ[MACHINE]
        return [
            Reading(device.id, used_bytes(folder, device.physical_index), device.memory_bytes) for device in devices
        ]
