from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagperf.api import Allocation, Node
from flagperf.builtin.ssh import SshCluster, SshOptions
from flagperf.errors import BadInput, MissingPart
from flagperf.kit import module_command

AGENT = [*module_command("/opt/python/bin/python3", "flagperf.agent"), "serve"]

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")


def allocate(num_nodes: int = 1, **options: Any) -> Allocation:
    return SshCluster().allocate(num_nodes, SshOptions(**{"config": "/dev/null", **options}))


def names(**options: Any) -> list[str]:
    """All of them: one more is too many, and the message lists what there is."""
    with pytest.raises(BadInput, match="10001 nodes are asked for, and the list of hosts has ") as refused:
        allocate(10001, **options)
    return str(refused.value).partition(": ")[2].split(", ")


def test_the_command_checks_host_keys_asks_nothing_and_ends_before_the_host() -> None:
    allocation = allocate(hosts="alpha", connect_timeout=7, settings=("ProxyJump=login",))
    assert allocation.agent_command(allocation.nodes[0], ["/opt/my python", "-m", "it's"]) == [
        *["ssh", "-T", "-F", "/dev/null"],
        *["-o", "BatchMode=yes"],
        *["-o", "StrictHostKeyChecking=yes"],
        *["-o", "NoHostAuthenticationForLocalhost=no"],
        *["-o", "ServerAliveInterval=5"],
        *["-o", "ServerAliveCountMax=3"],
        *["-o", "ClearAllForwardings=yes"],
        *["-o", "ForwardAgent=no"],
        *["-o", "ForwardX11=no"],
        *["-o", "RemoteCommand=none"],
        *["-o", "ConnectTimeout=7"],
        *["-o", "ProxyJump=login"],
        *["--", "alpha", """'/opt/my python' -m 'it'"'"'s'"""],
    ]


def test_the_first_hosts_are_the_nodes_with_their_python() -> None:
    allocation = allocate(2, hosts="node[01-16]", python="/opt/python/bin/python3")
    assert allocation.nodes == tuple(Node(name, "", "/opt/python/bin/python3") for name in ("node01", "node02"))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("node[08-11]", ["node08", "node09", "node10", "node11"]),
        ("beta,alpha", ["beta", "alpha"]),
        ("beta, alpha ,beta", ["beta", "alpha"]),
        ("b[2-3],a[1,4]", ["b2", "b3", "a1", "a4"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-4]!n2", ["n1", "n3", "n4"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("2001:db8::1,::1", ["2001:db8::1", "::1"]),
        ("gpu_a.example.org", ["gpu_a.example.org"]),
        ("n[1-1000]", [*(f"n{number}" for number in range(1, 21)), "..."]),
    ],
)
def test_lists_of_hosts_in_the_order_in_which_they_are_written(hosts: str, expected: list[str]) -> None:
    assert names(hosts=hosts) == expected


@given(st.text(alphabet="ab01,:.%-[]!&^@/* \\\n'$", max_size=12))
def test_every_list_of_hosts_is_refused_or_has_names_that_are_no_option(hosts: str) -> None:
    with pytest.raises(BadInput) as refused:
        allocate(10001, hosts=hosts)
    _, _, listed = str(refused.value).partition("the list of hosts has ")
    assert not [name for name in listed.partition(": ")[2].split(", ") if name.startswith(("-", "%", "@"))]


def test_addresses_are_known_where_hosts_are_addresses_for_everybody() -> None:
    allocation = allocate(4, hosts="alpha,10.0.0.1,2001:db8::1,fe80::1%eth0")
    assert [node.address for node in allocation.nodes] == ["", "10.0.0.1", "2001:db8::1", ""]


NO_HOSTS = ("-oProxyCommand=x", "a b", "a;b", "$(x)", "`x`", "user@a", "@group", "a'b", "ü", "*", "a/b")
NO_LISTS = ("n[1-3", "n[3-1]", "[2001:db8::1]", "n[a-b]")


def test_hosts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode[3-4]  # rack 1\n\nalpha,node3\n")
    assert names(hosts_file=str(path)) == ["node3", "node4", "alpha"]
    path.write_text("alpha\nbeta slots=8\n")
    with pytest.raises(BadInput, match=r"hosts, line 2: 'beta slots=8' is not a host name"):
        allocate(hosts_file=str(path))
    with pytest.raises(BadInput, match=r"cannot read .*absent"):
        allocate(hosts_file=str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither hosts nor hosts_file is given"),
        ({"hosts": "a", "hosts_file": "b"}, "both hosts and hosts_file are given"),
        ({"hosts": " "}, "the list of hosts has 0: none"),
        ({"hosts": "a\nb"}, "option hosts of cluster ssh: 'a\\\\nb' has a control character"),
        ({"hosts": "a", "python": "~/venv/bin/python"}, "neither an absolute path nor the name of a command"),
        ({"hosts": "a", "python": "-c"}, "neither an absolute path nor the name of a command"),
        ({"hosts": "a", "settings": ("-oPort=1",)}, "'-oPort=1' is not of the form Name=value"),
        ({"hosts": "a", "settings": ("Port 1",)}, "'Port 1' is not of the form Name=value"),
        ({"hosts": "a", "settings": ("StrictHostKeyChecking=no",)}, "StrictHostKeyChecking cannot be set"),
        ({"hosts": "a", "settings": ("stricthostkeychecking=accept-new",)}, "stricthostkeychecking cannot be set"),
        ({"hosts": "a", "settings": ("KnownHostsCommand=/bin/keys",)}, "KnownHostsCommand cannot be set"),
        ({"hosts": "a", "settings": ("Include=/tmp/x",)}, "Include cannot be set"),
        (
            {"hosts": "a", "settings": ("Nonsense=1",)},
            "ssh cannot read its settings for a: .*nonsense",
        ),
        ({"hosts": "a", "config": "/absent/config"}, "ssh cannot read its settings for a: .*absent"),
        *(({"hosts": host}, "is not a host name") for host in NO_HOSTS),
        *(({"hosts": hosts}, r"is not a list of hosts: (bad range|missing bracket)") for hosts in NO_LISTS),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        allocate(**options)


def test_a_machine_without_ssh_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPart, match="there is no ssh on PATH: install the OpenSSH client"):
        allocate(hosts="alpha")


def test_fewer_connections_are_opened_at_once_through_a_jump_host(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host inner*\n  ProxyJump login\nHost *\n  ProxyCommand none\n")
    starts = [allocate(hosts=host, config=str(config)).max_starts for host in ("outer", "inner1")]
    assert starts == [64, 8]
    assert allocate(hosts="inner1", config=str(config), max_starts=30).max_starts == 30


def test_no_setting_of_the_user_turns_off_the_check_of_host_keys(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "StrictHostKeyChecking no\nNoHostAuthenticationForLocalhost yes\nForwardAgent yes\nRemoteCommand ls\n"
    )
    allocation = allocate(hosts="alpha", config=str(config))
    *ssh, _, _, _ = allocation.agent_command(allocation.nodes[0], ["x"])
    said = subprocess.run([*ssh, "-G", "--", "alpha"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"stricthostkeychecking true", "forwardagent no"} <= set(said)
    assert "nohostauthenticationforlocalhost no" in said
    assert not [line for line in said if line.startswith("remotecommand")]


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "tcsh", "fish"])
def test_words_reach_the_command_as_they_are_in_every_login_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    words = ["a b", "it's", "$HOME", "`id`", "a;b", '"', "*", "~", "", "é", AGENT[2]]
    allocation = allocate(hosts="alpha")
    remote = allocation.agent_command(allocation.nodes[0], ["printf", "[%s]", *words])[-1]
    said = subprocess.run([shell, "-c", remote], capture_output=True, text=True, check=True).stdout
    assert said == "".join(f"[{word}]" for word in words)


@pytest.mark.parametrize("word", ["a!b", "a\\b", "a\nb", "a\0b", "=ls", "%1", "a\rb"])
def test_words_that_shells_read_differently_are_refused(word: str) -> None:
    allocation = allocate(hosts="alpha")
    with pytest.raises(BadInput, match="cannot carry"):
        allocation.agent_command(allocation.nodes[0], ["python3", word])
