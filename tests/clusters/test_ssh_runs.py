"""Whole runs over real ssh, on two hosts that share no temporary folder with this machine."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from cluster_runs import ENDLESS, SHORT, TINY, User, losses, told_seconds, wait_until
from hosts import Host, Hosts

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.operator_file import decode_operators
from flagperf.bundle.verify import verify_bundle

pytest.importorskip("torch")
pytestmark = pytest.mark.run


def user_of(hosts: Hosts, folder: Path, *more: str, config: Path | None = None) -> User:
    options = ["--cluster", "ssh", "--cluster-option", "hosts=alpha,beta"]
    return User(folder, *options, "--cluster-option", f"config={config or hosts.ssh_config}", *more)


def assert_nothing_left(hosts: Hosts) -> None:
    for host in (hosts.alpha, hosts.beta):
        wait_until(lambda host=host: not host.machine.processes("flagperf"))  # type: ignore[misc]
        assert not [*Path(f"/proc/{host.machine.pid}/root/tmp").glob("flagperf-[!hsip]*")]


def test_two_nodes_over_ssh_have_the_losses_of_one_node(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "ssh")
    assert user.runs("plan", "distilbert", *SHORT, "--nodes", "2")[0] == 0, user.stderr
    assert "  ssh -T -F " in user.stdout and "  GLOO_SOCKET_IFNAME=?  # " in user.stdout
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 0, stderr
    here = User(tmp_path / "here")
    assert here.runs("run", "distilbert", *SHORT, "--devices", "2")[0] == 0
    assert losses(user.bundle) == pytest.approx(losses(here.bundle), rel=1e-6)
    assert user.verify() == 0
    assert_nothing_left(hosts)


def test_repeats_of_collectives_go_across_nodes(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "ssh")
    few = ("--set", "collectives.operations=['all_reduce', 'all_to_all']", "collectives.precisions=['fp32']")
    code, stderr = user.runs("run", "collectives", *TINY, *few, "--nodes", "2", "--repeat", "2")
    assert code == 0, stderr
    bundles = sorted((user.folder / "runs").iterdir())
    assert len(bundles) == 2
    for bundle in bundles:
        rows = read_bundle(bundle).run.rows
        assert {row.labels["scope"] for row in rows} == {"nodes"} and all(row.median for row in rows)
        assert {row.labels["operation"] for row in rows} == {"all_reduce", "all_to_all"}
        assert verify_bundle(bundle).problems == ()
    assert_nothing_left(hosts)


def test_a_layout_over_two_nodes_is_aligned_with_one_and_records_its_operators(hosts: Hosts, tmp_path: Path) -> None:
    layout = (*TINY, "--parallel", "TP2PP2DP1", "--set", "training.max_steps=3", "training.warmup_steps=1")
    user, here = user_of(hosts, tmp_path / "ssh"), User(tmp_path / "here")
    record = ("--record-operators", "--record-steps", "1")
    code, stderr = user.runs("run", "llama2_70b", *layout, *record, "--nodes", "2", "--devices", "2")
    assert code == 0, stderr
    assert user.verify() == 0
    assert here.runs("run", "llama2_70b", *layout, "--devices", "4")[0] == 0
    assert losses(user.bundle, rank=3) == pytest.approx(losses(here.bundle, rank=3)[:2], rel=1e-6)
    recording = decode_operators(user.bundle)
    assert [part.ranks for part in recording.parts] == [[0, 1], [2, 3]], "two pipeline stages"
    assert recording.num_ranks == 4


def test_a_wrong_host_key_is_refused_and_nothing_starts(hosts: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts, tmp_path / "user", config=hosts.ssh_config_with_wrong_key)
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 3
    assert "node 1 (beta) cannot be reached" in stderr and "Host key verification failed" in stderr
    assert "Traceback" not in stderr
    assert not (user.folder / "runs").exists()
    assert_nothing_left(hosts)


def test_a_host_that_goes_away_ends_the_run_on_both_sides(hosts: Hosts, tmp_path: Path) -> None:
    user, process = endless(hosts, tmp_path / "user")
    with hosts.beta.without_link():
        with told_seconds("a link taken down"):
            assert user.ended(process)[0] == 3, user.stderr
        assert_failed(hosts, user, "node 1 (beta) was lost")


def test_a_killed_worker_is_named_with_its_node(hosts: Hosts, tmp_path: Path) -> None:
    user, process = endless(hosts, tmp_path / "user")
    (worker,) = (each for each in hosts.beta.machine.processes() if has_rank(each))
    with told_seconds("a worker killed"):
        worker.kill()
        assert user.ended(process)[0] == 3, user.stderr
    assert_failed(hosts, user, "node 1 (beta): rank 1: killed by SIGKILL")


def test_a_rebooted_host_ends_the_run(hosts: Hosts, tmp_path: Path) -> None:
    user, process = endless(hosts, tmp_path / "user")
    with told_seconds("a host rebooted"):
        hosts.beta.reboot()
        assert user.ended(process)[0] == 3, user.stderr
    assert_failed(hosts, user, "node 1 (beta) was lost: ")


def endless(hosts: Hosts, folder: Path) -> tuple[User, subprocess.Popen[str]]:
    """A run of which something has arrived from both nodes, while it goes on."""
    user = user_of(hosts, folder)
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2")
    user.wait_for_step(process)
    wait_until(lambda: losses(user.bundle) and losses(user.bundle, rank=1))
    return user, process


def assert_failed(hosts: Hosts, user: User, words: str) -> None:
    assert user.ending[0] == "failed" and words in user.ending[1], user.ending
    assert_nothing_left(hosts)
    assert losses(user.bundle) and losses(user.bundle, rank=1) and user.verify() == 0


def has_rank(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "RANK" in process.environ()
    return False


def test_hosts_that_cannot_be_used_are_named_before_anything_starts(hosts: Hosts, tmp_path: Path) -> None:
    """beta is without flagperf, has another one, or lacks the data; then it cannot be reached at all."""
    option = ["--cluster-option", "connect_timeout=20", "--cluster-option", "python=/tmp/python"]
    for host in (hosts.alpha, hosts.beta):
        write_program(host, "/tmp/python", f'exec {sys.executable} "$@"')
    user = user_of(hosts, tmp_path / "user", *option)

    def refusal(*arguments: str) -> tuple[int, str]:
        code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2", *arguments)
        assert "Traceback" not in stderr and not (user.folder / "runs").exists()
        return code, stderr

    write_data(tmp_path / "data")
    shutil.copytree(tmp_path / "data", Path(f"/proc/{hosts.alpha.machine.pid}/root{tmp_path}/data"))
    code, stderr = refusal("--data-dir", str(tmp_path / "data"), "--set", "data.source=sst2")
    assert code == 2 and "node 1 (beta): " in stderr and f"{tmp_path}/data is not a folder" in stderr, stderr

    write_program(hosts.beta, "/tmp/python", """echo '{"flagperf": "0.0.9"}'; exec cat > /dev/null""")
    code, stderr = refusal()
    assert code == 3 and "node 1 (beta) has flagperf 0.0.9" in stderr, stderr
    write_program(hosts.beta, "/tmp/python", "echo No module named flagperf >&2; exit 1")
    code, stderr = refusal()
    assert code == 3 and "node 1 (beta) cannot be reached, or has no such flagperf: No module named" in stderr, stderr
    with hosts.beta.without_link():
        code, stderr = refusal()
    assert code == 3 and "node 1 (beta) cannot be reached" in stderr, stderr
    assert_nothing_left(hosts)


def write_data(folder: Path) -> None:
    """What distilbert reads of sentences, for the vocabulary of its tiny profile."""
    for name in ("SST-2/train.tsv", "SST-2/dev.tsv", "distilbert-base-uncased/vocab.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("sentence\tlabel\na good film \t1\nbad \t0\n")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{number}" for number in range(96))]
    (folder / "distilbert-base-uncased/vocab.txt").write_text("".join(f"{word}\n" for word in words))


def write_program(host: Host, path: str, script: str) -> None:
    """In a folder that only this host has."""
    there = Path(f"/proc/{host.machine.pid}/root{path}")
    there.write_text(f"#!/bin/sh\n{script}\n")
    there.chmod(0o755)
