"""One run of many stand-in nodes, as a command makes it, measured from inside: `python -m bench.fleet_parent NODES
RUN_SECONDS` prints a FleetCost. A process of its own, so that its memory is that of nothing else."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import stand_in_nodes
from bench.stand_in_nodes import ARRIVALS, FACTS, HOST
from flagperf.api import Allocation, Node
from flagperf.bundle.paths import FOLDERS
from flagperf.fleet.fleet import Fleet, open_fleet
from flagperf.fleet.reach import describe_machine, describe_nodes, with_meeting_place
from flagperf.fleet.signals import raise_on_signals
from flagperf.fleet.supervision import BundleParts, Supervision
from flagperf.plan.node_check import check_nodes_of
from flagperf.plan.plan import make_plan
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.spec.job import Job, RunSpec
from flagperf.spec.protocol import Progress, work_orders

DEVICES = 8
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Moment(msgspec.Struct, frozen=True):
    seconds: float
    cpu_seconds: float
    memory_bytes: int


class FleetCost(msgspec.Struct, frozen=True):
    num_nodes: int
    described_seconds: float
    """From nothing to the facts of all nodes."""
    described_cpu_seconds: float
    checked_seconds: float
    """What `nodes check` then takes."""
    planned_seconds: float
    """Of the plan, which asks the nodes again."""
    launched_seconds: float
    """From the first work order to the last node that says that its workers run."""
    order_bytes: int
    num_threads: int
    num_files: int
    """Open ones, more than before."""
    memory_before_bytes: int
    peak_memory_bytes: int
    commands_cpu_seconds: float
    """Of what stands for ssh."""
    running: tuple[Moment, ...]
    """While all nodes run and report, about every second."""


class StandInAllocation(Allocation):
    def __init__(self, folder: Path, num_nodes: int) -> None:
        self.nodes = tuple(Node(f"node{index:05}", "10.0.0.1") for index in range(num_nodes))
        self._folder = folder
        self._indexes = {node.name: index for index, node in enumerate(self.nodes)}

    def agent_command(self, node: Node, _command: Sequence[str]) -> list[str]:
        return stand_in_nodes.command(self._folder, self._indexes[node.name])


class Watch:
    """The parent's cost over time."""

    def __init__(self, num_nodes: int) -> None:
        self.moments: list[Moment] = []
        self.launched_at = 0.0
        self._num_launched, self._num_nodes = 0, num_nodes

    def on_event(self, _event: object) -> None:
        self._num_launched += 1
        if self._num_launched == self._num_nodes:
            self.launched_at = time.monotonic()

    def on_progress(self, _index: int, _progress: Progress) -> None:
        if not self.moments or time.monotonic() - self.moments[-1].seconds >= 1.0:
            self.moments.append(Moment(time.monotonic(), time.process_time(), memory_bytes()))


def run(num_nodes: int, run_seconds: int) -> FleetCost:
    plugins = load_plugins()
    spec = RunSpec("distilbert", vendor="cpu", nodes=num_nodes, devices=DEVICES)
    with stand_ins(plugins, run_seconds) as folder:
        memory_before, files_before, children_before = memory_bytes(), _num_entries("fd"), _children_cpu_seconds()
        began, cpu_began, watch = time.monotonic(), time.process_time(), Watch(num_nodes)
        with open_fleet(StandInAllocation(folder, num_nodes)) as fleet:
            describe_nodes(fleet, vendor="cpu")
            described, cpu_described = time.monotonic(), time.process_time()
            check_nodes_of(spec, plugins, fleet)
            checked = time.monotonic()
            job = with_meeting_place(make_plan(spec, plugins, fleet).job, fleet, None)
            planned = time.monotonic()
            order_bytes = _run(fleet, job, watch, folder / "bundle")
            num_threads, num_files = _num_entries("task"), _num_entries("fd")
        commands_cpu = _children_cpu_seconds() - children_before
    return FleetCost(
        num_nodes=num_nodes,
        described_seconds=described - began,
        described_cpu_seconds=cpu_described - cpu_began,
        checked_seconds=checked - described,
        planned_seconds=planned - checked,
        launched_seconds=watch.launched_at - planned,
        order_bytes=order_bytes,
        num_threads=num_threads,
        num_files=num_files - files_before,
        memory_before_bytes=memory_before,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        commands_cpu_seconds=commands_cpu,
        running=tuple(watch.moments),
    )


@contextlib.contextmanager
def stand_ins(plugins: Plugins, run_seconds: int) -> Iterator[Path]:
    """The facts are those of this machine's own agent."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = msgspec.structs.replace(describe_machine(plugins), host=HOST.decode())
        (folder / FACTS).write_bytes(msgspec.json.encode(facts))
        os.mkfifo(folder / ARRIVALS)
        command = [sys.executable, "-m", "bench.stand_in_nodes", name, str(run_seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout
                server.stdout.readline()  # it is ready
                yield folder
            finally:
                server.kill()


def _run(fleet: Fleet, job: Job, watch: Watch, bundle: Path) -> int:
    """As run_job does. Returns the bytes of the largest work order."""
    for part in FOLDERS:
        (bundle / part).mkdir(parents=True)
    parts = BundleParts(job, bundle)
    supervision = Supervision(fleet, None, watch.on_event, watch.on_progress, parts)
    largest = 0
    for order in work_orders(job):
        largest = max(largest, len(msgspec.json.encode(order)))
        fleet.request(order.node_index, "run", order)
    supervision.wait_for_all()
    if supervision.lost:
        raise RuntimeError(f"{len(supervision.lost)} nodes were lost: {next(iter(supervision.lost.values()))}")
    if len(parts.complete) != len(job.nodes):
        raise RuntimeError(f"only {len(parts.complete)} of {len(job.nodes)} nodes sent all of their files")
    return largest


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def _num_entries(name: str) -> int:
    return len(list(Path("/proc/self", name).iterdir()))


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    raise_on_signals()  # its stand-ins end with it
    print(msgspec.json.encode(run(int(sys.argv[1]), int(sys.argv[2]))).decode())
