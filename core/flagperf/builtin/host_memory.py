"""Host memory of the workers: the resident memory of each rank's processes, out of one pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import psutil

from flagperf.api import Availability, Device, Machine, MemoryProbe, Reading, memory_limit_bytes


class HostMemoryProbe(MemoryProbe):
    vendor = "cpu"
    name = "rss"
    minimum_interval_seconds = 0.1

    def __init__(self) -> None:
        self._pool_bytes = 0
        self._rank_of_process: dict[tuple[int, float], int | None] = {}

    def available(self, machine: Machine) -> Availability:
        self._pool_bytes = memory_limit_bytes(machine)
        return Availability(True)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        """Slot i is local rank i. Before the workers start nothing is theirs, so the baseline is 0 by definition."""
        used_bytes = self._rss_by_local_rank(launcher_pid) if launcher_pid else Counter[int]()
        return [
            Reading(device.id, used_bytes=used_bytes[local_rank], total_bytes=self._pool_bytes)
            for local_rank, device in enumerate(devices)
        ]

    def _rss_by_local_rank(self, launcher_pid: int) -> Counter[int]:
        used: Counter[int] = Counter()
        for process in psutil.Process(launcher_pid).children(recursive=True):
            try:
                local_rank = self._local_rank(process)
                if local_rank is not None:
                    used[local_rank] += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return used

    def _local_rank(self, process: psutil.Process) -> int | None:
        """From the process's environment, which its own children (data loaders) inherit."""
        key = (process.pid, process.create_time())
        if key not in self._rank_of_process:
            rank = process.environ().get("LOCAL_RANK")
            self._rank_of_process[key] = None if rank is None else int(rank)
        return self._rank_of_process[key]
