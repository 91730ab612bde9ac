"""A run of six steps, `flagperf run distilbert`, against a plain script with the same imports and steps: almost all of
both is start-up."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.measure import Figure, NotMeasured, interleaved, median_interval
from bench.startup import Start, start
from flagperf.fleet.reach import reach_nodes
from flagperf.plan.plan import make_plan
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import RunSpec

NUM_ROUNDS = 15
LIMIT = 1.1

NUM_STEPS = 6
CHANGES = (f"training.max_steps={NUM_STEPS}", "training.warmup_steps=1", "evaluation.max_rows=4")
"""As little work as measures something."""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        runs_dir = Path(folder) / "runs"
        flagperf = [sys.executable, "-m", "flagperf", *_run_arguments(runs_dir)]
        plain = [sys.executable, "-m", "bench.plain_distilbert", json.dumps(_values())]
        _check(flagperf, plain, runs_dir)
        commands = {"flagperf": flagperf, "plain": plain, "plain again": plain}
        starts = interleaved({name: partial(start, command) for name, command in commands.items()}, NUM_ROUNDS)
    how = (
        f"wall time, median and 95 % interval (order statistics) of {NUM_ROUNDS} interleaved rounds, "
        f"{NUM_STEPS} steps, 1 device"
    )
    same, ratio = _ratios(starts["plain again"], starts["plain"]), _ratios(starts["flagperf"], starts["plain"])
    interval, cpu = median_interval(ratio), _cpu_ratio(starts["flagperf"], starts["plain"])
    yield Figure("run_startup_aa", str(median_interval(same)), "", None, f"plain over plain: {how}")
    how = f"flagperf over plain: {how}; by CPU time {cpu:.2f}"
    yield Figure("run_startup", str(interval), f"<= {LIMIT}", interval.median <= LIMIT, how)


def _run_arguments(runs_dir: Path) -> list[str]:
    return ["run", "distilbert", "-q", "--profile", "tiny", "--runs-dir", str(runs_dir), "--set", *CHANGES]


def _values() -> dict[str, object]:
    spec, plugins = RunSpec("distilbert", profile="tiny", set=CHANGES), load_plugins()
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet)
    if plan.job.vendor != "cpu":
        raise NotMeasured(f"the plain script computes on the CPU, the run would use {plan.job.vendor}")
    return plan.job.config.values


def _check(flagperf: Sequence[str], plain: Sequence[str], runs_dir: Path) -> None:
    """Both do all their steps. Once before anything is timed, which also fills the caches."""
    _output(flagperf)
    events = next(runs_dir.glob("*/events/rank-*.jsonl")).read_text()
    num_steps = {"flagperf": events.count('"step_finished"'), "plain": _output(plain).count("step ")}
    if set(num_steps.values()) != {NUM_STEPS}:
        raise NotMeasured(f"steps done: {num_steps}; both should do {NUM_STEPS}")


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasured(f"`{' '.join(command[:4])}` failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _ratios(one: Sequence[Start], other: Sequence[Start]) -> list[float]:
    return [first.wall_seconds / second.wall_seconds for first, second in zip(one, other, strict=True)]


def _cpu_ratio(one: Sequence[Start], other: Sequence[Start]) -> float:
    return min(each.cpu_seconds for each in one) / min(each.cpu_seconds for each in other)
