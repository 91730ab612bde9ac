"""The least that a vendor has to write for its devices."""

from __future__ import annotations

from flagperf.api import Activation, Device, DeviceBackend, Machine, Presence

CARD = Device("acme-0", "A1", "A1", 0)


class MinimalBackend(DeviceBackend):
    vendor = "acme"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32", "tf32")

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", ("/dev/acme0",))

    def devices(self, machine: Machine) -> list[Device]:
        return [CARD]

    def activate(self, local_rank: int, num_threads: int, devices: list[Device]) -> Activation:
        return Activation("cpu", "acme-0", "none")

    def synchronize(self) -> None: ...
