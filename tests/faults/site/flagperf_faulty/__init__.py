"""Cards that compute on the CPU without torch, the site of this machine, and a case. See fault.py."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flagperf.api import (
    Activation,
    Allocation,
    Availability,
    CardModel,
    CaseReference,
    Cluster,
    Device,
    DeviceBackend,
    LaunchCommand,
    Launcher,
    Machine,
    MemoryProbe,
    Node,
    NodeShare,
    NoOptions,
    OperatorLibrary,
    Peak,
    Precision,
    Presence,
    ProcessReading,
    Reading,
    Setting,
)
from flagperf.hookspecs import hookimpl
from flagperf_faulty.fault import answer

FLAGPERF_HOOK_API = 1
MODEL = "Faulty F1"
GIB = 1 << 30

answer("import", None)


class FaultyBackend(DeviceBackend):
    vendor = "faulty"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32",)
    has_allocator = False

    def models(self) -> tuple[CardModel, ...]:
        return answer("models", (CardModel(MODEL, "F1", "F1", (), (Peak(MODEL, "fp32", 1e12, "made up", "low"),)),))

    def peaks(self) -> list[Peak]:
        return answer("peaks", [Peak(MODEL, "fp32", 1e12, "made up", "low")])

    def unsupported(self, model: str) -> dict[str, str]:
        return answer("unsupported", {})

    def tuning_folder(self) -> Path | None:
        return answer("tuning_folder", None)

    def presence(self, machine: Machine) -> Presence:
        return answer("presence", Presence("present", ("made up",)))

    def devices(self, machine: Machine) -> list[Device]:
        return answer("devices", [Device(f"faulty-{index}", MODEL, "F1", index, 16 * GIB) for index in range(2)])

    def versions(self, machine: Machine) -> dict[str, str]:
        return answer("versions", {"driver": "1"})

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        return answer("activate", Activation("cpu", devices[local_rank].id, "slot"))

    def set_precision(self, precision: Precision) -> None:
        answer("set_precision", None)

    def synchronize(self) -> None:
        answer("synchronize", None)

    def framework_state(self) -> dict[str, Any]:
        return answer("framework_state", {})


class FaultyProbe(MemoryProbe):
    vendor = "faulty"
    name = "faulty"

    def available(self, machine: Machine) -> Availability:
        return answer("available", Availability(True))

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        readings = [Reading(device.id, 2 * GIB, 16 * GIB) for device in devices]
        return readings if launcher_pid is None else answer("sample", readings)

    def processes(self, devices: Sequence[Device]) -> list[ProcessReading]:
        return answer("processes", [])

    def close(self) -> None:
        answer("close", None)


class FaultyLauncher(Launcher):
    vendor = "faulty"
    name = "direct"

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        values = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
        settings = tuple(Setting(name, str(value), "one worker") for name, value in values.items())
        return answer("command", LaunchCommand((python, "-m", worker_module), settings))

    def env_script(self, machine: Machine) -> str | None:
        return answer("env_script", None)


class FaultyAllocation(Allocation):
    nodes_share_host = True

    def __init__(self, num_nodes: int) -> None:
        self.nodes = tuple(Node("127.0.0.1", "127.0.0.1") for _ in range(num_nodes))

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        return answer("agent_command", list(command))

    def explain(self, node: Node) -> str:
        return answer("explain", "the site knows nothing")

    def release(self) -> None:
        answer("release", None)


class FaultySite(Cluster):
    name = "faultysite"

    def allocate(self, num_nodes: int, options: NoOptions) -> Allocation:
        return answer("allocate", FaultyAllocation(num_nodes))


def estimate(values: dict[str, Any]) -> dict[str, int]:
    return answer("estimate", {"weights": os.cpu_count() or 1})


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return answer("flagperf_devices", [FaultyBackend()])


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return answer("flagperf_memory_probes", [FaultyProbe()])


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return answer("flagperf_launchers", [FaultyLauncher()])


@hookimpl
def flagperf_clusters() -> list[Cluster]:
    return answer("flagperf_clusters", [FaultySite()])


class FaultyLibrary(OperatorLibrary):
    name = "faulty"

    def enable(self) -> AbstractContextManager[None]:
        return nullcontext()


@hookimpl
def flagperf_operator_libraries() -> list[OperatorLibrary]:
    return answer("flagperf_operator_libraries", [FaultyLibrary()])


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    return answer("flagperf_cases", [CaseReference("flagperf_faulty.case:run", Path(__file__).parent / "case.toml")])
