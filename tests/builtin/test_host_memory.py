"""The probe beside a real tree of processes that hold memory of known size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from flagperf.agent.probe import choose_probe
from flagperf.api import Device, Machine
from flagperf.builtin import flagperf_memory_probes
from flagperf.builtin.cpu import HostMemoryProbe, ProportionalMemoryProbe, ResidentMemoryProbe
from live_processes import is_alive

MIB = 1 << 20
SIZE = 64 * MIB
SLACK = 6 * MIB
"""What a small Python process may gain or lose by itself."""

SLOTS = [Device(f"cpu:{index}", "EPYC", "CPU", index) for index in range(3)]

# Holds as many bytes as the last line of stdin says. Every byte is written, so that it is resident.
HOLDER = "import sys\nfor line in sys.stdin:\n    held = None; held = b'x' * int(line); print('done', flush=True)"

# As HOLDER, then forks three children that only wait: they share every page with it until it writes.
FORKING_HOLDER = """
import os, signal, sys
children = []
for line in sys.stdin:
    held = b'x' * int(line)
    for _ in range(3):
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(3600)
            signal.pause()
    print('done', flush=True)
for child in children:
    os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
"""

# Starts its commands with their environments, then passes lines on: `1 500` tells the second one to hold 500 bytes.
LAUNCHER = """
import json, os, subprocess, sys
PIPE = subprocess.PIPE
children = [
    subprocess.Popen(argv, env={**os.environ, **environ}, stdin=PIPE, stdout=PIPE)
    for argv, environ in json.loads(sys.argv[1])
]
print("started", flush=True)
for line in sys.stdin:
    index, _, message = line.partition(" ")
    children[int(index)].stdin.write(message.encode()); children[int(index)].stdin.flush()
    print(children[int(index)].stdout.readline().decode().strip(), flush=True)
for child in children:
    child.stdin.close(); child.wait()
"""


class Tree:
    """A launcher with workers below it. Each worker holds what it is told to."""

    def __init__(self, workers: Sequence[tuple[list[str], dict[str, str]]]) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, json.dumps(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self.pid = self._process.pid
        self._await("started")

    def tell(self, worker: int, message: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{worker} {message}\n")
        self._process.stdin.flush()
        self._await("done")

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(600)

    def _await(self, word: str) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline().strip() == word


def worker(local_rank: int) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-c", HOLDER], {"LOCAL_RANK": str(local_rank)}


@pytest.fixture
def probe() -> HostMemoryProbe:
    probe = ProportionalMemoryProbe()
    assert probe.available(Machine()).available
    return probe


@pytest.fixture
def two_workers() -> Iterator[Tree]:
    tree = Tree([worker(0), worker(1)])
    tree.tell(0, 0)
    tree.tell(1, 0)
    yield tree
    tree.end()


def used(probe: HostMemoryProbe, tree: Tree) -> list[int]:
    """0 for a slot that has no figure."""
    return [reading.used_bytes or 0 for reading in probe.sample(SLOTS, tree.pid)]


def absence(probe: HostMemoryProbe, tree: Tree, slot: int) -> str:
    """Why a slot has no figure."""
    reading = probe.sample(SLOTS, tree.pid)[slot]
    assert reading.used_bytes is None and reading.total_bytes
    return reading.missing["used_bytes"]


def test_slots_share_the_pool_and_have_no_use_before_the_workers_start(probe: HostMemoryProbe) -> None:
    readings = probe.sample(SLOTS[:2], None)
    assert [(reading.device_id, reading.used_bytes) for reading in readings] == [("cpu:0", 0), ("cpu:1", 0)]
    (total,) = {reading.total_bytes for reading in readings}
    assert total is not None and total > SIZE


def test_use_rises_by_what_a_worker_takes_and_falls_again(probe: HostMemoryProbe, two_workers: Tree) -> None:
    before = used(probe, two_workers)
    two_workers.tell(0, SIZE)
    during = used(probe, two_workers)
    two_workers.tell(0, 0)
    after = used(probe, two_workers)
    assert during[0] - before[0] == pytest.approx(SIZE, abs=SLACK)
    assert after[0] == pytest.approx(before[0], abs=SLACK)
    assert during[1] == pytest.approx(before[1], abs=SLACK)
    assert absence(probe, two_workers, 2) == "worker_not_started"


def test_second_sample_does_not_add_to_the_first(probe: HostMemoryProbe, two_workers: Tree) -> None:
    two_workers.tell(1, SIZE)
    samples = [used(probe, two_workers) for _ in range(4)]
    for sample in samples[1:]:
        assert sample == pytest.approx(samples[0], abs=SLACK)


def test_a_single_worker_may_be_its_own_launcher(probe: HostMemoryProbe) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "LOCAL_RANK": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    holder.stdin.write(f"{SIZE}\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "done\n"
    (reading,) = probe.sample(SLOTS[:1], holder.pid)
    holder.communicate()
    assert SIZE < (reading.used_bytes or 0) < SIZE + 5 * SLACK


def test_a_workers_own_children_are_counted_with_it(probe: HostMemoryProbe) -> None:
    """As data loaders are: they inherit the environment of their rank."""
    loader = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    tree = Tree([([sys.executable, "-c", loader, HOLDER], {"LOCAL_RANK": "1"})])
    tree.tell(0, 0)
    before = used(probe, tree)
    tree.tell(0, SIZE)
    assert used(probe, tree)[1] - before[1] == pytest.approx(SIZE, abs=SLACK)
    tree.end()


def test_pages_that_a_worker_shares_with_its_children_are_counted_once(probe: HostMemoryProbe) -> None:
    """As data loaders do that were forked: four processes that hold the same bytes hold them once."""
    tree = Tree([([sys.executable, "-c", FORKING_HOLDER], {"LOCAL_RANK": "0"})])
    tree.tell(0, SIZE)
    proportional, resident = used(probe, tree)[0], used(ResidentMemoryProbe(), tree)[0]
    tree.end()
    assert SIZE < proportional < SIZE + 5 * SLACK
    assert resident > 4 * SIZE


def test_without_the_kernels_proportional_figure_the_resident_one_is_taken_and_named(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    choice = choose_probe(flagperf_memory_probes(), Machine(root=tmp_path))
    assert choice.probe is not None and choice.probe.name == "rss"
    assert "smaps_rollup" in choice.not_used["pss"]
    (tmp_path / "proc/self/smaps_rollup").write_text("Pss: 378 kB\n")
    choice = choose_probe(flagperf_memory_probes(), Machine(root=tmp_path))
    assert choice.probe is not None and choice.probe.name == "pss"


def test_a_worker_that_learns_its_rank_in_a_wrapper_script_is_counted_from_then_on(probe: HostMemoryProbe) -> None:
    """Between fork and exec, and in a script that ends with exec, a process has no rank yet; later the same pid has.
    A helper that never gets one is not counted."""
    wrapper = 'read start; echo done; LOCAL_RANK=0 exec "$0" -c "$1"'
    tree = Tree([(["sh", "-c", wrapper, sys.executable, HOLDER], {}), ([sys.executable, "-c", HOLDER], {})])
    tree.tell(1, SIZE)
    assert used(probe, tree) == [0, 0, 0]
    tree.tell(0, "start")
    tree.tell(0, SIZE)
    assert SIZE < used(probe, tree)[0] < SIZE + 5 * SLACK
    tree.end()


@pytest.mark.parametrize("kind", [ProportionalMemoryProbe, ResidentMemoryProbe])
def test_a_worker_that_has_ended_has_no_figure_and_not_0(kind: type[HostMemoryProbe]) -> None:
    """Nobody has waited for it yet: the kernel still lists it, without memory."""
    probe = kind()
    assert probe.available(Machine()).available
    tree = Tree([worker(0), worker(1)])
    tree.tell(1, SIZE)
    assert used(probe, tree)[1] > SIZE
    ending = next(child for child in psutil.Process(tree.pid).children() if child.environ()["LOCAL_RANK"] == "1")
    ending.kill()
    while is_alive(ending):
        time.sleep(0.01)
    assert absence(probe, tree, 1) == "worker_ended"
    assert used(probe, tree)[0] > 0
    tree.end()


def test_a_launcher_that_is_gone_is_an_error_which_the_agent_records_as_a_gap(probe: HostMemoryProbe) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(psutil.NoSuchProcess):
        probe.sample(SLOTS, process.pid)
