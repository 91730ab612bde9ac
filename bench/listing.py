"""`flagperf runs list` on many bundles against few: the cost of a bundle must not grow with their number."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.measure import Figure, NotMeasured, interleaved
from flagperf import version
from flagperf.bundle.listing import list_runs
from flagperf.bundle.run_record import STORE_SCHEMA, Ending, Run
from flagperf.event_files import EventFile
from flagperf.fleet.reach import reach_nodes
from flagperf.metrics.entry import Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.plan.plan import make_plan
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import RunSpec

FEW, MANY = 100, 10_000
NUM_ROUNDS = 7
LIMIT = 150


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        content = _run_json()
        _fill(few, FEW, content)
        _fill(many, MANY, content)
        times = interleaved({"few": lambda: _cpu_seconds(few), "many": lambda: _cpu_seconds(many)}, NUM_ROUNDS)
    ratio = min(times["many"]) / min(times["few"])
    how = (
        f"list_runs on {MANY} bundles over {FEW}, run.json of {len(content) / 1e3:.0f} kB, CPU time, least of "
        f"{NUM_ROUNDS} interleaved calls each; {min(times['many']) / MANY * 1e6:.0f} us per bundle"
    )
    yield Figure("listing", f"{ratio:.0f}", f"<= {LIMIT}", ratio <= LIMIT, how)


def _cpu_seconds(runs_dir: Path) -> float:
    """CPU time: the wall time of a long listing takes in whatever else the machine does, that of a short one hardly."""
    began = time.process_time()
    list_runs(runs_dir)
    return time.process_time() - began


def _run_json() -> bytes:
    """A run.json with all that a real one has: a real plan of the first case on eight slots, every metric."""
    plugins = load_plugins()
    spec = RunSpec(next(iter(plugins.cases())), vendor="cpu", devices=8)
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet, needs_worker=False)
    nothing = EventFile(())
    run = Run(
        schema=STORE_SCHEMA, id=plan.job.run_id, created="2025-01-02T03:04:05+00:00", flagperf_version=version(),
        spec=plan.spec, job=plan.job, manifest=plan.manifest, ending=Ending("succeeded"),
        metrics=compute_metrics(Observed(plan.job, plan.manifest, Record(nothing, (nothing,), (nothing,)))),
    )  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(run), indent=1)


def _fill(runs_dir: Path, count: int, content: bytes) -> None:
    for index in range(count):
        bundle = runs_dir / f"20250102T{index:06d}Z-case-cpu-1x8-{index:06x}"
        bundle.mkdir(parents=True)
        (bundle / "run.json").write_bytes(content)
    if len(list_runs(runs_dir)) != count or list_runs(runs_dir)[0].status != "succeeded":
        raise NotMeasured(f"list_runs does not read the {count} bundles made in {runs_dir}")
