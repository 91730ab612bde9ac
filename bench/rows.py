"""How long the cases that measure rows take in profile tiny, and what a bundle of operators and its report cost."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.many_ranks import usage_of
from bench.measure import Figure
from flagperf.bundle.bundle import read_bundle

BASE = {
    "gemm": 1,
    "memory_bandwidth": 1,
    "memory_capacity": 1,
    "host_to_device": 1,
    "peer_to_peer": 2,
    "collectives": 2,
}
"""Case -> devices: the fewest that it takes."""

BASE_SECONDS, OPERATORS_SECONDS, REPORT_SECONDS = 120, 180, 1.0
NUM_ROWS, BYTES_LIMIT = 500, 5_000_000
NUM_REPORTS = 5
HOW = "wall time of the commands; means something only on idle cores"


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        base = {case: _run_seconds(folder, case, devices) for case, devices in BASE.items()}
        details = (", ".join(f"{case} {seconds:.1f} s" for case, seconds in base.items()),)
        yield _seconds("base_set", sum(base.values()), BASE_SECONDS, f"{len(BASE)} base cases, tiny: {HOW}", details)
        seconds = _run_seconds(folder, "operators", 1)
        yield _seconds("operator_suite", seconds, OPERATORS_SECONDS, f"all operators, tiny: {HOW}")
        yield from _bundle(next(Path(folder).glob("*-operators-*")))


def _bundle(bundle: Path) -> Iterator[Figure]:
    num_rows = len(read_bundle(bundle).run.rows)
    num_bytes = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) * NUM_ROWS / num_rows
    how = f"size of the bundle of {num_rows} rows in profile tiny, for {NUM_ROWS}"
    size = f"{num_bytes / 1e6:.2f} MB"
    yield Figure("operator_bundle", size, f"< {BYTES_LIMIT / 1e6:.0f}", num_bytes < BYTES_LIMIT, how)
    command = [sys.executable, "-m", "flagperf", "report", str(bundle), "--format", "md"]
    seconds = min(usage_of(command).cpu_seconds for _ in range(NUM_REPORTS)) * NUM_ROWS / num_rows
    how = f"CPU time of `report --format md` of it, least of {NUM_REPORTS}, for {NUM_ROWS} rows"
    yield _seconds("operator_report", seconds, REPORT_SECONDS, how)


def _run_seconds(folder: str, case: str, devices: int) -> float:
    run = [sys.executable, "-m", "flagperf", "run", case, "--profile", "tiny", "-q", "--devices", str(devices)]
    return usage_of([*run, "--runs-dir", folder]).wall_seconds


def _seconds(name: str, seconds: float, limit: float, how: str, details: tuple[str, ...] = ()) -> Figure:
    return Figure(name, f"{seconds:.2f} s", f"< {limit:g}", seconds < limit, how, details)
