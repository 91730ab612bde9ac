"""Asking nodes over real ssh."""

from __future__ import annotations

import json
from pathlib import Path

from cluster_runs import User
from hosts import Hosts


def checked(hosts: Hosts, folder: Path, config: Path, *more: str) -> tuple[int, str]:
    settings = ["--cluster-option", f"config={config}", "--cluster-option", "connect_timeout=20"]
    user = User(folder, "--hosts", "alpha,beta", "--vendor", "cpu", *settings)
    code, _ = user.runs("nodes", "check", *more)
    return code, user.stdout


def test_two_hosts_can_be_used(hosts: Hosts, tmp_path: Path) -> None:
    code, output = checked(hosts, tmp_path / "user", hosts.ssh_config, "--json")
    nodes = json.loads(output)["nodes"]
    assert code == 0, output
    assert [node["host"] for node in nodes] == ["alpha", "beta"]
    assert [node["address"] for node in nodes] == [hosts.alpha.address, hosts.beta.address]
    assert [node["facts"]["interface"] for node in nodes] == ["eth0", "ens5"]
    assert all(abs(node["clock"]["seconds"]) <= node["clock"]["error_seconds"] for node in nodes)


def test_a_host_without_a_link_and_one_with_a_wrong_key_are_both_named(hosts: Hosts, tmp_path: Path) -> None:
    with hosts.alpha.without_link():
        code, output = checked(hosts, tmp_path / "user", hosts.ssh_config_with_wrong_key)
    assert code == 3
    assert output.startswith("2 nodes: 0 reached, 0 can be used\n")
    alpha, _, beta = " ".join(output.partition("Problems")[2].split()).partition(" 1 it cannot be reached")
    assert "0 it cannot be reached" in alpha and ("timed out" in alpha or "No route to host" in alpha)
    assert beta.endswith("Host key verification failed.")
