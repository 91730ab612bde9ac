"""Whole runs over real ssh, on two hosts that share no temporary folder with this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import Hosts

pytest.importorskip("torch")
pytestmark = pytest.mark.run

TINY = ("--vendor", "cpu", "--profile", "tiny", "--set", "training.max_steps=6", "training.warmup_steps=1")
MARKER = "FLAGPERF_WORKERS_OF"


def command(hosts: Hosts, cwd: Path, *arguments: str, config: Path | None = None) -> list[str]:
    """Of a user in this folder who reaches the hosts by a configuration of ssh."""
    options = ["--cluster", "ssh", "--cluster-option", "hosts=alpha,beta"]
    options += ["--cluster-option", f"config={config or hosts.ssh_config}"]
    return [sys.executable, "-m", "flagperf", *arguments, *options]


def flagperf(hosts: Hosts, cwd: Path, *arguments: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(hosts, cwd, *arguments, config=config),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def bundle_of(cwd: Path) -> Path:
    (bundle,) = (cwd / "runs").iterdir()
    return bundle


def losses(bundle: Path, rank: int = 0) -> list[float]:
    events = [json.loads(line) for line in (bundle / f"events/rank-{rank:05}.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["type"] == "step_finished"]


def test_two_nodes_over_ssh_have_the_losses_of_one_node(hosts: Hosts, tmp_path: Path) -> None:
    done = flagperf(hosts, tmp_path, "run", "distilbert", *TINY, "--nodes", "2")
    assert done.returncode == 0, done.stderr
    over_ssh = bundle_of(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    local = [sys.executable, "-m", "flagperf", "run", "distilbert", *TINY, "--devices", "2"]
    subprocess.run(local, cwd=here, check=True, capture_output=True, timeout=300)
    assert losses(over_ssh) == pytest.approx(losses(bundle_of(here)), rel=1e-6)
    verified = subprocess.run(
        [sys.executable, "-m", "flagperf", "runs", "verify", "latest"], cwd=tmp_path, check=False, capture_output=True
    )
    assert verified.returncode == 0, verified.stdout
