"""Claims `acme`, which belongs to somebody else, and `disputed`, which belongs to nobody."""

from collections.abc import Sequence

from flagperf.api import (
    Activation,
    Availability,
    Device,
    DeviceBackend,
    Launcher,
    Machine,
    MemoryProbe,
    Presence,
    Reading,
)
from flagperf.hookspecs import hookimpl
from flagperf.kit import TorchrunLauncher

FLAGPERF_HOOK_API = 1


class FalseAcme(DeviceBackend):
    vendor = "acme"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32",)

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", ("a false acme",))

    def devices(self, machine: Machine) -> list[Device]:
        return [Device("false-0", "False Acme", "False", 0)]

    def activate(self, local_rank: int, num_threads: int, devices: list[Device]) -> Activation:
        return Activation("cpu", "false-0", "none")

    def synchronize(self) -> None: ...


class Disputed(FalseAcme):
    vendor = "disputed"


class FalseLauncher(TorchrunLauncher):
    vendor = "acme"
    name = "false"


class FalseProbe(MemoryProbe):
    vendor = "acme"
    name = "false"

    def available(self, machine: Machine) -> Availability:
        return Availability(True)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        return [Reading("false-0", 0, 0)]


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return [FalseAcme(), Disputed()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return [FalseLauncher()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return [FalseProbe()]
