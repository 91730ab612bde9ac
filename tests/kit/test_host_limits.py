"""Machines laid out in a temporary directory, with control groups of both versions."""

from __future__ import annotations

import os
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


def test_without_a_control_group_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert allowed_cores(lay_out(tmp_path, {})) == 16


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("400000 100000", 4), ("150000 100000", 2), ("10000 100000", 1), ("3200000 100000", 16), ("max 100000", 16)],
)
def test_a_quota_of_version_2_is_rounded_up(tmp_path: Path, quota: str, cores: int) -> None:
    assert allowed_cores(v2(tmp_path, "/", {f"{GROUP}/cpu.max": quota})) == cores


@pytest.mark.parametrize(("quota", "cores"), [(400000, 4), (150000, 2), (10000, 1), (-1, 16), (0, 16)])
def test_a_quota_of_version_1_too(tmp_path: Path, quota: int, cores: int) -> None:
    files = {f"{GROUP}/cpu/docker/a1/cpu.cfs_quota_us": quota, f"{GROUP}/cpu/docker/a1/cpu.cfs_period_us": 100000}
    assert allowed_cores(v1(tmp_path, "/docker/a1", files)) == cores


@pytest.mark.parametrize(
    ("own", "parent"), [("200000 100000", "max 100000"), ("max 100000", "200000 100000"), ("200000 100000", "9 1")]
)
def test_the_smallest_quota_on_the_way_up_counts(tmp_path: Path, own: str, parent: str) -> None:
    files = {f"{GROUP}/pod/a1/cpu.max": own, f"{GROUP}/pod/cpu.max": parent}
    assert allowed_cores(v2(tmp_path, "/pod/a1", files)) == 2


def test_a_group_that_is_mounted_as_the_root_is_found(tmp_path: Path) -> None:
    """Without a namespace of its own a container sees its path on the host, and its group's files at the mount."""
    assert allowed_cores(v2(tmp_path, "/docker/a1", {f"{GROUP}/cpu.max": "300000 100000"})) == 3
    files = {f"{GROUP}/cpu/cpu.cfs_quota_us": 300000, f"{GROUP}/cpu/cpu.cfs_period_us": 100000}
    assert allowed_cores(v1(tmp_path, "/docker/a1", files)) == 3


def test_another_groups_quota_does_not_count(tmp_path: Path) -> None:
    assert allowed_cores(v2(tmp_path, "/pod/a1", {f"{GROUP}/pod/b2/cpu.max": "100000 100000"})) == 16


# Memory


def test_without_a_control_group_the_machines_memory_counts(tmp_path: Path) -> None:
    machine = lay_out(tmp_path, {})
    assert memory_limit_bytes(machine) == TOTAL
    assert memory_used_bytes(machine) == TOTAL - AVAILABLE


def test_without_meminfo_there_is_a_limit_but_no_use(tmp_path: Path) -> None:
    machine = Machine(root=tmp_path, environ={})
    assert memory_limit_bytes(machine) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_used_bytes(machine) is None


def test_a_limit_of_version_2_brings_its_own_count(tmp_path: Path) -> None:
    files = {f"{GROUP}/pod/memory.max": 8 * GIB, f"{GROUP}/pod/memory.current": 3 * GIB}
    machine = v2(tmp_path, "/pod", files)
    assert (memory_limit_bytes(machine), memory_used_bytes(machine)) == (8 * GIB, 3 * GIB)


def test_a_limit_of_version_1_too(tmp_path: Path) -> None:
    folder = f"{GROUP}/memory/docker/a1"
    files = {f"{folder}/memory.limit_in_bytes": 8 * GIB, f"{folder}/memory.usage_in_bytes": 3 * GIB}
    machine = v1(tmp_path, "/docker/a1", files)
    assert (memory_limit_bytes(machine), memory_used_bytes(machine)) == (8 * GIB, 3 * GIB)


@pytest.mark.parametrize("limit", ["max", UNLIMITED_V1, 0, 128 * GIB, "", "garbage"])
def test_no_limit_is_none_and_the_machines_own_count_is_used(tmp_path: Path, limit: object) -> None:
    files = {f"{GROUP}/memory.max": limit, f"{GROUP}/memory.current": 3 * GIB}
    machine = v2(tmp_path, "/", files)
    assert (memory_limit_bytes(machine), memory_used_bytes(machine)) == (TOTAL, TOTAL - AVAILABLE)


def test_the_smallest_limit_on_the_way_up_counts_with_its_own_use(tmp_path: Path) -> None:
    """What a neighbour in the limiting group uses is used up for this process too."""
    files = {
        f"{GROUP}/pod/a1/memory.max": "max",
        f"{GROUP}/pod/a1/memory.current": 1 * GIB,
        f"{GROUP}/pod/memory.max": 8 * GIB,
        f"{GROUP}/pod/memory.current": 5 * GIB,
        f"{GROUP}/memory.max": "max",
    }
    machine = v2(tmp_path, "/pod/a1", files)
    assert memory_limit_bytes(machine) == 8 * GIB
    assert memory_used_bytes(machine) == 5 * GIB


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
