"""Machines laid out in a temporary directory, with control groups of both versions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flagperf.api import Machine
from flagperf.kit import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.kit.host_limits import oom_kills

GIB = 1 << 30
TOTAL, AVAILABLE = 64 * GIB, 40 * GIB
MEMINFO = f"MemTotal:       {TOTAL // 1024} kB\nMemFree:        1 kB\nMemAvailable:   {AVAILABLE // 1024} kB\n"
UNLIMITED_V1 = 9223372036854771712
GROUP = "/sys/fs/cgroup"


Make = Callable[[Path, str, dict[str, object]], Machine]


@pytest.fixture(autouse=True)
def _sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)), raising=False)


def lay_out(root: Path, files: dict[str, object]) -> Machine:
    for path, text in {"/proc/meminfo": MEMINFO, **files}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")
    return Machine(root=root, environ={})


def v2(root: Path, group: str, files: dict[str, object]) -> Machine:
    return lay_out(root, {"/proc/self/cgroup": f"0::{group}", **files})


def v1(root: Path, group: str, files: dict[str, object]) -> Machine:
    """As Docker leaves it on an older host; controllers that are mounted together have one line."""
    lines = f"12:cpuset:{group}\n6:cpu,cpuacct:{group}\n4:memory:{group}\n1:name=systemd:/other\n0::/system.slice"
    return lay_out(root, {"/proc/self/cgroup": lines, **files})


# Cores

V1 = f"{GROUP}/cpu/docker/a1"


@pytest.mark.parametrize(
    ("make", "group", "files", "cores"),
    [
        (v2, "/", {}, 16),  # the affinity mask counts
        (v2, "/", {f"{GROUP}/cpu.max": "400000 100000"}, 4),
        (v2, "/", {f"{GROUP}/cpu.max": "150000 100000"}, 2),
        (v2, "/", {f"{GROUP}/cpu.max": "10000 100000"}, 1),
        (v2, "/", {f"{GROUP}/cpu.max": "3200000 100000"}, 16),
        (v2, "/", {f"{GROUP}/cpu.max": "max 100000"}, 16),
        (v1, "/docker/a1", {f"{V1}/cpu.cfs_quota_us": 150000, f"{V1}/cpu.cfs_period_us": 100000}, 2),
        (v1, "/docker/a1", {f"{V1}/cpu.cfs_quota_us": 10000, f"{V1}/cpu.cfs_period_us": 100000}, 1),
        (v1, "/docker/a1", {f"{V1}/cpu.cfs_quota_us": -1, f"{V1}/cpu.cfs_period_us": 100000}, 16),
        (v1, "/docker/a1", {f"{V1}/cpu.cfs_quota_us": 0, f"{V1}/cpu.cfs_period_us": 100000}, 16),
        # the smallest on the way up counts, and another group's does not
        (v2, "/pod/a1", {f"{GROUP}/pod/a1/cpu.max": "200000 100000", f"{GROUP}/pod/cpu.max": "max 100000"}, 2),
        (v2, "/pod/a1", {f"{GROUP}/pod/a1/cpu.max": "max 100000", f"{GROUP}/pod/cpu.max": "200000 100000"}, 2),
        (v2, "/pod/a1", {f"{GROUP}/pod/a1/cpu.max": "200000 100000", f"{GROUP}/pod/cpu.max": "9 1"}, 2),
        (v2, "/pod/a1", {f"{GROUP}/pod/b2/cpu.max": "100000 100000"}, 16),
        # without a namespace of its own a container sees its path on the host, and its group's files at the mount
        (v2, "/docker/a1", {f"{GROUP}/cpu.max": "300000 100000"}, 3),
        (v1, "/docker/a1", {f"{GROUP}/cpu/cpu.cfs_quota_us": 300000, f"{GROUP}/cpu/cpu.cfs_period_us": 100000}, 3),
    ],
)
def test_cores(make: Make, group: str, files: dict[str, object], cores: int, tmp_path: Path) -> None:
    assert allowed_cores(make(tmp_path, group, files)) == cores


# Memory

POD, V1_MEMORY = f"{GROUP}/pod", f"{GROUP}/memory/docker/a1"
NO_LIMITS = ("max", UNLIMITED_V1, 0, 128 * GIB, "", "garbage")


@pytest.mark.parametrize(
    ("make", "group", "files", "limit", "used"),
    [
        (v2, "/", {}, TOTAL, TOTAL - AVAILABLE),
        *(
            (v2, "/", {f"{GROUP}/memory.max": none, f"{GROUP}/memory.current": 3 * GIB}, TOTAL, TOTAL - AVAILABLE)
            for none in NO_LIMITS
        ),
        (v2, "/pod", {f"{POD}/memory.max": 8 * GIB, f"{POD}/memory.current": 3 * GIB}, 8 * GIB, 3 * GIB),
        (
            v1,
            "/docker/a1",
            {f"{V1_MEMORY}/memory.limit_in_bytes": 8 * GIB, f"{V1_MEMORY}/memory.usage_in_bytes": 3 * GIB},
            8 * GIB,
            3 * GIB,
        ),
        (  # what a neighbour in the limiting group uses is used up for this process too
            v2,
            "/pod/a1",
            {
                f"{POD}/a1/memory.max": "max",
                f"{POD}/a1/memory.current": GIB,
                f"{POD}/memory.max": 8 * GIB,
                f"{POD}/memory.current": 5 * GIB,
                f"{GROUP}/memory.max": "max",
            },
            8 * GIB,
            5 * GIB,
        ),
    ],
)
def test_memory(make: Make, group: str, files: dict[str, object], limit: int, used: int, tmp_path: Path) -> None:
    machine = make(tmp_path, group, files)
    assert (memory_limit_bytes(machine), memory_used_bytes(machine)) == (limit, used)


def test_without_meminfo_there_is_a_limit_but_no_use(tmp_path: Path) -> None:
    machine = Machine(root=tmp_path, environ={})
    assert memory_limit_bytes(machine) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_used_bytes(machine) is None


def test_this_machine_has_cores_and_memory() -> None:
    machine = Machine()
    assert 1 <= allowed_cores(machine) <= 16
    limit, used = memory_limit_bytes(machine), memory_used_bytes(machine)
    assert used is not None and 0 < used < limit


# --- killed for lack of memory


EVENTS_V2 = "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 1"
CONTROL_V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3"


def test_kills_are_counted_in_the_group_itself_and_not_around_it(tmp_path: Path) -> None:
    files = {f"{GROUP}/a/memory.events": EVENTS_V2.replace("3", "9"), f"{GROUP}/a/b/memory.events": EVENTS_V2}
    assert oom_kills(v2(tmp_path, "/a/b", files)) == 3


def test_inside_a_container_the_group_is_mounted_as_the_root(tmp_path: Path) -> None:
    assert oom_kills(v1(tmp_path, "/docker/0123", {f"{GROUP}/memory/memory.oom_control": CONTROL_V1})) == 3


def test_a_kernel_that_does_not_count_says_nothing(tmp_path: Path) -> None:
    older = {f"{GROUP}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0"}
    assert oom_kills(v1(tmp_path, "/", older)) is None
    assert oom_kills(lay_out(tmp_path / "bare", {})) is None
