"""Runs in real containers: on this machine, and on hosts that are reached by ssh."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cluster_runs import SHORT, User, losses
from hosts import Hosts
from podman import IMAGE, Podman, python_folders
from test_ssh_runs import user_of

pytest.importorskip("torch")
pytestmark = pytest.mark.run

MOUNTS = ", ".join(f'"{folder}"' for folder in python_folders())
OPTIONS = (
    "--container",
    IMAGE,
    "--container-option",
    f"python={sys.executable}",
    "--container-option",
    f"mounts=[{MOUNTS}]",
)


def container_fact(user: User) -> str:
    nodes = json.loads((user.bundle / "environment.json").read_text())
    return str(nodes[0]["environment"]["facts"]["container"]["value"])


def test_a_run_in_a_container_on_this_machine(podman: Podman, tmp_path: Path) -> None:
    user = User(tmp_path / "user", *OPTIONS, environment=podman.environment)
    assert user.runs("plan", "distilbert", *SHORT)[0] == 0, user.stderr
    assert "  podman run --rm " in user.stdout
    code, stderr = user.runs("run", "distilbert", *SHORT, "--devices", "2")
    assert code == 0, stderr
    assert podman.image_id() in container_fact(user)
    assert losses(user.bundle) and user.verify() == 0
    assert podman.containers() == []


def test_a_run_in_containers_over_ssh(hosts_with_image: Hosts, tmp_path: Path) -> None:
    user = user_of(hosts_with_image, tmp_path / "user", *OPTIONS)
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 0, stderr
    assert IMAGE in container_fact(user)
    assert losses(user.bundle) and user.verify() == 0
    assert hosts_with_image.alpha.podman.containers() == []
