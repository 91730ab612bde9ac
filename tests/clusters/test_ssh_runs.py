"""Whole runs over real ssh, on two hosts that share no temporary folder with this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import ENDLESS, SHORT, TINY, User, losses, wait_until
from hosts import Hosts

pytest.importorskip("torch")
pytestmark = pytest.mark.run


def user_of(hosts: Hosts, folder: Path, *more: str, config: Path | None = None) -> User:
    options = ["--cluster", "ssh", "--cluster-option", "hosts=alpha,beta"]
    return User(folder, *options, "--cluster-option", f"config={config or hosts.ssh_config}", *more)


def assert_nothing_left(hosts: Hosts, seconds: float = 30) -> None:
    for host in (hosts.alpha, hosts.beta):
        wait_until(lambda host=host: not host.machine.processes("flagperf"), seconds=seconds)  # type: ignore[misc]
        assert not [*Path(f"/proc/{host.machine.pid}/root/tmp").glob("flagperf-[!hsip]*")]


def test_two_nodes_over_ssh_have_the_losses_of_one_node(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "ssh")
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 0, stderr
    here = User(tmp_path / "here")
    assert here.runs("run", "distilbert", *SHORT, "--devices", "2")[0] == 0
    assert losses(user.bundle) == pytest.approx(losses(here.bundle), rel=1e-6)
    assert user.verify() == 0
    assert_nothing_left(hosts)


def test_a_layout_over_two_nodes_is_aligned_with_one(hosts: Hosts, tmp_path: Path) -> None:
    layout = (*TINY, "--parallel", "TP2PP2DP1", "--set", "training.max_steps=3", "training.warmup_steps=1")
    user, here = user_of(hosts, tmp_path / "ssh"), User(tmp_path / "here")
    code, stderr = user.runs("run", "llama2_70b", *layout, "--nodes", "2", "--devices", "2")
    assert code == 0, stderr
    assert here.runs("run", "llama2_70b", *layout, "--devices", "4")[0] == 0
    assert losses(user.bundle, rank=3) == pytest.approx(losses(here.bundle, rank=3), rel=1e-6)


def test_a_wrong_host_key_is_refused_and_nothing_starts(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "user", config=hosts.ssh_config_with_wrong_key)
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 3
    assert "node 1 (beta) cannot be reached" in stderr and "Host key verification failed" in stderr
    assert "Traceback" not in stderr
    assert not (user.folder / "runs").exists()
    assert_nothing_left(hosts)


def test_a_host_that_goes_away_ends_the_run_on_both_sides(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "user")
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2")
    user.wait_for_step(process)
    wait_until(lambda: losses(user.bundle) and losses(user.bundle, rank=1))  # arrived while the run goes on
    with hosts.beta.without_link():
        code, stderr = user.ended(process)
        assert code == 3, stderr
        assert user.ending[0] == "failed" and "node 1 (beta) was lost" in user.ending[1]
        assert_nothing_left(hosts)
    assert losses(user.bundle) and losses(user.bundle, rank=1)
    assert user.verify() == 0
