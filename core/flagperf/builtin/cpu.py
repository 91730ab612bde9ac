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
        """fp32 never computes in TF32 or bfloat16."""
        import torch

        torch.set_float32_matmul_precision("highest")

    def precision_switches(self) -> dict[str, str]:
        import torch

        return {"float32_matmul_precision": torch.get_float32_matmul_precision()}

    def synchronize(self) -> None:
        """Operators on the CPU have finished when they return."""

    def cache_bytes(self) -> int | None:
        """The largest that sysfs lists for the first core: `32768K`."""
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


# Host memory of the workers: what each rank's processes hold, out of one pool.
#
# The proportional set size counts a page that n processes share as 1/n in each, so that the sum over a rank's
# processes (a worker and the data loaders that it forked) has every page once. Resident memory would count it n
# times.


class HostMemoryProbe(MemoryProbe):
    vendor = "cpu"
    minimum_interval_seconds = 0.1

    def __init__(self) -> None:
        self._pool_bytes = 0
        self._rank_of_process: dict[tuple[int, float], int] = {}

    def available(self, machine: Machine) -> Availability:
        self._pool_bytes = memory_limit_bytes(machine)
        return Availability(True)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        """Slot i is local rank i. Before the launcher starts nothing is theirs, so the baseline is 0 by definition; a
        rank without a process later on has no figure, which is not 0."""
        if launcher_pid is None:
            return [Reading(device.id, used_bytes=0, total_bytes=self._pool_bytes) for device in devices]
        used_bytes = self._used_by_local_rank(launcher_pid)
        return [self._reading(device.id, rank, used_bytes[rank]) for rank, device in enumerate(devices)]

    @abc.abstractmethod
    def used_bytes(self, process: psutil.Process) -> int:
        """Of one process. Raises psutil.NoSuchProcess or ProcessLookupError where it has ended."""

    def _reading(self, device_id: str, local_rank: int, used_bytes: int) -> Reading:
        """A process that holds no page is a zombie."""
        if used_bytes:
            return Reading(device_id, used_bytes=used_bytes, total_bytes=self._pool_bytes)
        has_been = local_rank in self._rank_of_process.values()
        why = "worker_ended" if has_been else "worker_not_started"
        return Reading(device_id, total_bytes=self._pool_bytes, missing={"used_bytes": why})

    def _used_by_local_rank(self, launcher_pid: int) -> Counter[int]:
        used: Counter[int] = Counter()
        for pid in (launcher_pid, *descendants(launcher_pid)):  # a single worker is its own launcher
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
                process = psutil.Process(pid)
                local_rank = self._local_rank(process)
                if local_rank is not None:
                    used[local_rank] += self.used_bytes(process)
        return used

    def _local_rank(self, process: psutil.Process) -> int | None:
        """From the process's environment, which its own children (data loaders) inherit. A process without one may get
        it later: a wrapper script that calls exec keeps its pid."""
        key = (process.pid, process.create_time())
        if key not in self._rank_of_process:
            rank = process.environ().get("LOCAL_RANK")
            if rank is None:
                return None
            self._rank_of_process[key] = int(rank)
        return self._rank_of_process[key]


class ProportionalMemoryProbe(HostMemoryProbe):
    name = "pss"

    def available(self, machine: Machine) -> Availability:
        if machine.read("/proc/self/smaps_rollup") is None:
            return Availability(False, "this kernel has no readable /proc/<pid>/smaps_rollup")
        return super().available(machine)

    def used_bytes(self, process: psutil.Process) -> int:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


class ResidentMemoryProbe(HostMemoryProbe):
    """The fallback where the proportional figure cannot be read. Too high for a rank whose processes share pages."""

    name = "rss"

    def used_bytes(self, process: psutil.Process) -> int:
        return int(process.memory_info().rss)
