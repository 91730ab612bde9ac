"""Simulated cards in the worker: torch computes on the CPU, device identities come from the adapter."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.api import Activation, Device, DeviceBackend, Machine, Precision, Presence


def worker_backend(backend: DeviceBackend, simulated: bool) -> DeviceBackend:
    return SimulatedBackend() if simulated else backend


class SimulatedBackend(DeviceBackend):
    vendor = "simulated"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ()
    has_allocator = False

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", ("simulated",))

    def devices(self, machine: Machine) -> list[Device]:
        return []

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        import torch

        torch.set_num_threads(num_threads)
        return Activation("cpu", devices[local_rank].id, "simulated")

    def set_precision(self, precision: Precision) -> None:
        import torch

        torch.set_float32_matmul_precision("highest")

    def synchronize(self) -> None:
        """Nothing to wait for: CPU operators are synchronous."""
