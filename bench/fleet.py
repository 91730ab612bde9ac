"""What nodes cost the command that runs them: fleets of 100, 300 and 1,000 stand-in nodes (bench.stand_in_nodes), each
described, planned, run for a while, with progress and new parts of their files every second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec

from bench.fleet_parent import FleetCost, Moment
from bench.measure import Figure, NotMeasured

SIZES = (100, 300, 1000)
RUN_SECONDS = 30
START_LIMIT_SECONDS = 30.0
GROWTH_LIMIT = 1.5
"""Of the cost of a node, when there are ten times as many."""
FLAT_LIMIT = 1.5
MEMORY_FLAT_LIMIT = 1.05
"""Of the second half of a run over the first. CPU time of so short a while also has what the machine does beside it."""


def measure() -> Iterator[Figure]:
    costs = [_cost(size) for size in SIZES]
    few, many = costs[0], costs[-1]
    how = f"until {many.num_nodes} stand-in nodes have answered describe; 0.2 to 0.5 s of latency, 64 starting at once"
    started = many.described_seconds
    details = tuple(map(_line, costs))
    limit = f"<= {START_LIMIT_SECONDS:.0f} s"
    yield Figure("fleet_start", f"{started:.1f} s", limit, started <= START_LIMIT_SECONDS, how, details)
    growth = _run_share(many.running) / many.num_nodes / (_run_share(few.running) / few.num_nodes)
    how = f"CPU time of the parent per node while all report every second, {many.num_nodes} nodes over {few.num_nodes}"
    yield Figure("fleet_cpu_growth", f"{growth:.2f}", f"<= {GROWTH_LIMIT}", growth <= GROWTH_LIMIT, how)
    growth = _memory_per_node(many) / _memory_per_node(few)
    how = f"memory that a node adds to the parent at its peak, {many.num_nodes} nodes over {few.num_nodes}"
    yield Figure("fleet_memory_growth", f"{growth:.2f}", f"<= {GROWTH_LIMIT}", growth <= GROWTH_LIMIT, how)
    first, second = _halves(many.running)
    cpu, memory = _run_share(second) / _run_share(first), second[-1].memory_bytes / first[0].memory_bytes
    how = f"second half of {RUN_SECONDS} s over the first, {many.num_nodes} nodes: CPU time; memory {memory:.3f}"
    yield Figure("fleet_flat", f"{cpu:.2f}", f"<= {FLAT_LIMIT}", cpu <= FLAT_LIMIT and memory <= MEMORY_FLAT_LIMIT, how)


def _cost(num_nodes: int) -> FleetCost:
    command = [sys.executable, "-m", "bench.fleet_parent", str(num_nodes), str(RUN_SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasured(f"{num_nodes} nodes: {done.stderr.strip()[-300:]}")
    cost = msgspec.json.decode(done.stdout, type=FleetCost)
    if len(cost.running) < RUN_SECONDS // 2:
        raise NotMeasured(f"{num_nodes} nodes: progress in {len(cost.running)} of {RUN_SECONDS} s")
    return cost


def _line(cost: FleetCost) -> str:
    share = _run_share(cost.running)
    parts = (
        f"described in {cost.described_seconds:.1f} s ({cost.described_cpu_seconds:.2f} s of CPU)",
        f"checked in {cost.checked_seconds:.1f} s",
        f"planned in {cost.planned_seconds:.1f} s",
        f"all launched {cost.launched_seconds:.1f} s after the first order of {cost.order_bytes} bytes",
        f"running {share:.1%} of a core ({share / cost.num_nodes * 1e6:.0f} us per node and second)",
        f"{cost.num_threads} thread, {cost.num_files} files, {_memory_per_node(cost) / 1024:.0f} KiB per node",
        f"{cost.commands_cpu_seconds:.1f} s of CPU for what stands for ssh",
    )
    return f"{cost.num_nodes:>5} nodes: {'; '.join(parts)}"


def _run_share(moments: Sequence[Moment]) -> float:
    """Of one core."""
    first, last = moments[0], moments[-1]
    return (last.cpu_seconds - first.cpu_seconds) / (last.seconds - first.seconds)


def _halves(moments: Sequence[Moment]) -> tuple[Sequence[Moment], Sequence[Moment]]:
    middle = len(moments) // 2
    return moments[: middle + 1], moments[middle:]


def _memory_per_node(cost: FleetCost) -> float:
    return (cost.peak_memory_bytes - cost.memory_before_bytes) / cost.num_nodes
