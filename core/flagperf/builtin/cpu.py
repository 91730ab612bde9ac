"""The CPU as a vendor: the reference that an adapter author reads first.

Its devices are worker slots, `cpu:0` to `cpu:63`. They share the cores and the memory of the machine, so they may be
more than the cores: such a run works and is marked as oversubscribed.
"""

from __future__ import annotations

import abc
import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from flagperf.api import (
    Activation,
    Availability,
    Device,
    DeviceBackend,
    Machine,
    MemoryProbe,
    Precision,
    Presence,
    Reading,
)
from flagperf.kit import TorchrunLauncher, descendants, memory_limit_bytes

NUM_SLOTS = 64


class CpuBackend(DeviceBackend):
    vendor = "cpu"
    title = {"en": "CPU", "zh": "CPU"}  # noqa: RUF012
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32", "bf16", "amp-bf16")
    memory_scope = "host"
    has_allocator = False
    is_fallback = True

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", (f"processor: {_model(machine)}",))

    def devices(self, machine: Machine) -> list[Device]:
        model, memory_bytes = _model(machine), memory_limit_bytes(machine)
        return [Device(f"cpu:{slot}", model, "CPU", slot, memory_bytes) for slot in range(NUM_SLOTS)]

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        import torch

        torch.set_num_threads(num_threads)
        return Activation("cpu", devices[local_rank].id, "slot")

    def set_precision(self, precision: Precision) -> None:
        """Keep fp32 from computing in TF32 or bfloat16."""
        import torch

        torch.set_float32_matmul_precision("highest")

    def precision_switches(self) -> dict[str, str]:
        import torch

        return {"float32_matmul_precision": torch.get_float32_matmul_precision()}

    def synchronize(self) -> None:
        """Do nothing: operators on the CPU have finished when they return."""

    def cache_bytes(self) -> int | None:
        """Return the largest cache that sysfs lists for the first core, as `32768K`."""
        sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=None)

    def framework_state(self) -> dict[str, str]:
        import torch

        return {
            "torch": str(torch.__version__),
            "threads": str(torch.get_num_threads()),
            **self.precision_switches(),
        }


class CpuLauncher(TorchrunLauncher):
    vendor = "cpu"


def _model(machine: Machine) -> str:
    for line in (machine.read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "CPU"


class HostMemoryProbe(MemoryProbe):
    """Reads the host memory of the workers: what each rank's processes hold, out of one pool."""

    vendor = "cpu"
    minimum_interval_seconds = 0.1

    def __init__(self) -> None:
        self._pool_bytes = 0
        self._rank_of_process: dict[tuple[int, float], int] = {}

    def available(self, machine: Machine) -> Availability:
        self._pool_bytes = memory_limit_bytes(machine)
        return Availability(True)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        """Return a reading for each slot; slot i is local rank i. Before the launcher starts nothing is theirs, so the
        baseline is 0 by definition. A rank without a process later on has no figure, which is not 0."""
        if launcher_pid is None:
            return [Reading(device.id, used_bytes=0, total_bytes=self._pool_bytes) for device in devices]
        used: Counter[int] = Counter()
        for pid in (launcher_pid, *descendants(launcher_pid)):  # a single worker is its own launcher
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
                process = psutil.Process(pid)
                local_rank = self._local_rank(process)
                if local_rank is not None:
                    used[local_rank] += self.used_bytes(process)
        readings = []
        for local_rank, device in enumerate(devices):
            if used[local_rank]:  # a process that holds no page is a zombie
                reading = Reading(device.id, used_bytes=used[local_rank], total_bytes=self._pool_bytes)
            else:
                has_been = local_rank in self._rank_of_process.values()
                why = "worker_ended" if has_been else "worker_not_started"
                reading = Reading(device.id, total_bytes=self._pool_bytes, missing={"used_bytes": why})
            readings.append(reading)
        return readings

    @abc.abstractmethod
    def used_bytes(self, process: psutil.Process) -> int:
        """Return the bytes of one process. Raise psutil.NoSuchProcess or ProcessLookupError where it has ended."""

    def _local_rank(self, process: psutil.Process) -> int | None:
        """Read it from the process's environment, which its own children (data loaders) inherit. A process without one
        may get it later: a wrapper script that calls exec keeps its pid."""
        key = (process.pid, process.create_time())
        if key not in self._rank_of_process:
            rank = process.environ().get("LOCAL_RANK")
            if rank is None:
                return None
            self._rank_of_process[key] = int(rank)
        return self._rank_of_process[key]


class ProportionalMemoryProbe(HostMemoryProbe):
    """Counts a page that n processes share as 1/n in each: the sum over a rank's processes (a worker and the data
    loaders that it forked) has every page once."""

    name = "pss"

    def available(self, machine: Machine) -> Availability:
        if machine.read("/proc/self/smaps_rollup") is None:
            return Availability(False, "this kernel has no readable /proc/<pid>/smaps_rollup")
        return super().available(machine)

    def used_bytes(self, process: psutil.Process) -> int:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


class ResidentMemoryProbe(HostMemoryProbe):
    """The fallback where the proportional figure cannot be read: it counts a page that n processes share n times."""

    name = "rss"

    def used_bytes(self, process: psutil.Process) -> int:
        return int(process.memory_info().rss)
