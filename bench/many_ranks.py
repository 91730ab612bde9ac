"""The end of a run on many ranks (all metrics from its raw files, run.json, MANIFEST) with twice the ranks: time must
grow no faster than they do, and memory by what is kept of a rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.measure import Figure, NotMeasured

RANKS = (1000, 2000)
GROWTH_LIMIT = 2.3
RANK_KIB_LIMIT = 128
"""The files of a rank and its part of the samples have about 330 KiB; decoded as a whole they took 1 MiB."""
DEVICES_PER_NODE = 8
MEBIBYTE = 1 << 20
BYTES_PER_RANK = 400 << 10


class Usage(msgspec.Struct, frozen=True):
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.1f} s CPU, {self.wall_seconds:.1f} s wall, {self.peak_bytes / MEBIBYTE:.0f} MiB"


def measure() -> Iterator[Figure]:
    few, many = (end_of_run(num_ranks)["end of run"] for num_ranks in RANKS)
    ratio = many.cpu_seconds / few.cpu_seconds
    how = f"CPU time of the end of a run, {RANKS[1]} ranks over {RANKS[0]}, 750 steps and 660 samples each"
    details = tuple(f"{num_ranks} ranks: {usage}" for num_ranks, usage in zip(RANKS, (few, many), strict=True))
    yield Figure("many_ranks", f"{ratio:.2f}", f"<= {GROWTH_LIMIT}", ratio <= GROWTH_LIMIT, how, details)
    rank_kib = (many.peak_bytes - few.peak_bytes) / (RANKS[1] - RANKS[0]) / 1024
    how = "growth of the peak memory from the former to the latter"
    is_within = rank_kib <= RANK_KIB_LIMIT
    yield Figure("many_ranks_memory", f"{rank_kib:.0f} KiB/rank", f"<= {RANK_KIB_LIMIT}", is_within, how)


def end_of_run(num_ranks: int, *commands: str) -> dict[str, Usage]:
    """What the end of a run takes, and then each command (words of flagperf) on its bundle."""
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < num_ranks * BYTES_PER_RANK:
            raise NotMeasured(f"{folder} has no room for a bundle of {num_ranks * BYTES_PER_RANK / 1e9:.1f} GB")
        usage_of([sys.executable, "-m", "bench.made_up_run", folder, str(num_ranks // DEVICES_PER_NODE)])
        bundle = str(next(Path(folder).iterdir()))
        found = {"end of run": usage_of([sys.executable, "-m", "bench.many_ranks", bundle])}
        for command in commands:
            found[command] = usage_of([sys.executable, "-m", "flagperf", *command.split(), bundle])
    return found


def usage_of(command: Sequence[str]) -> Usage:
    """Of a process of its own. This one stays small: a child's peak is at least that of its parent when it started."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise NotMeasured(f"`{' '.join(command[1:4])}` ended with {process.returncode}")
    return Usage(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def _end_run(bundle: Path) -> None:
    from flagperf.bundle.bundle import read_bundle
    from flagperf.bundle.run_record import Ending
    from flagperf.run import end_run, measure

    run = read_bundle(bundle).run
    end_run(bundle, run, Ending("succeeded"), measure(bundle, run))


if __name__ == "__main__":
    _end_run(Path(sys.argv[1]))
