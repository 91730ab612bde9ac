"""The built-in cluster `ssh` with real hosts, and small commands in place of the agent."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from hosts import PORT, Host, Hosts

from flagperf.api import Allocation
from flagperf.builtin.ssh import SshCluster, SshOptions

UNTIL_STDIN_ENDS = ["sh", "-c", "echo there; exec cat"]


def allocate(site: Hosts, num_nodes: int = 2, **options: Any) -> Allocation:
    given = {"hosts": "alpha,beta", "config": str(site.ssh_config), **options}
    return SshCluster().allocate(num_nodes, SshOptions(**given))


def started(allocation: Allocation, index: int) -> subprocess.Popen[bytes]:
    """A command on a node that says that it is there and reads its stdin."""
    process = subprocess.Popen(
        allocation.agent_command(allocation.nodes[index], UNTIL_STDIN_ENDS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout and process.stdout.readline() == b"there\n"
    return process


def refusal(allocation: Allocation, index: int) -> str:
    """What ssh says where it cannot connect."""
    command = allocation.agent_command(allocation.nodes[index], ["echo", "there"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, start_new_session=True)
    assert (done.returncode, done.stdout) == (255, "")
    return done.stderr


def no_command_left(host: Host) -> None:
    host.machine.wait_for(lambda: not host.machine.processes("cat"), "the end of the command")


def test_every_byte_and_every_word_arrives_and_the_end_of_stdin_ends_the_command(hosts: Hosts) -> None:
    allocation = allocate(hosts)
    sent = os.urandom(300_000)
    show = "import os, sys; print(os.uname().nodename, sys.argv[1:], 'SSH_AUTH_SOCK' in os.environ)"
    words = ["it's; $HOME", '"`id`"', "*"]
    for node in allocation.nodes:
        command = allocation.agent_command(node, ["cat"])
        assert subprocess.run(command, input=sent, stdout=subprocess.PIPE, check=True, timeout=600).stdout == sent
        command = allocation.agent_command(node, [sys.executable, "-c", show, *words])
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout
        assert said == f"{node.name} {words} False\n"


def test_sigterm_ends_the_command_on_the_host(hosts: Hosts) -> None:
    with started(allocate(hosts), 0) as process:
        process.terminate()
        assert process.wait(600) != 0
    no_command_left(hosts.alpha)


def test_a_host_with_another_key_or_an_unknown_one_is_refused(hosts: Hosts) -> None:
    other = allocate(hosts, config=str(hosts.ssh_config_with_wrong_key))
    assert "Host key verification failed" in refusal(other, 1)
    settings = (f"Port={PORT}", f"IdentityFile={hosts.folder / 'user_key'}", "UserKnownHostsFile=/dev/null")
    unknown = allocate(hosts, 1, config="/dev/null", hosts=hosts.beta.address, settings=settings)
    assert unknown.nodes[0].address == hosts.beta.address
    assert "Host key verification failed" in refusal(unknown, 0)


def test_a_host_that_does_not_answer_is_given_up(hosts: Hosts) -> None:
    allocation = allocate(hosts, connect_timeout=1)
    with hosts.beta.without_link():
        assert hosts.beta.address in refusal(allocation, 1)


def test_a_jump_host_is_that_of_the_users_configuration(hosts: Hosts) -> None:
    through = allocate(hosts, 1, hosts="beta", settings=("ProxyJump=alpha",))
    assert through.max_starts == 8
    show = [sys.executable, "-c", "import os; print(os.environ['SSH_CLIENT'].split()[0])"]
    command = through.agent_command(through.nodes[0], show)
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout == (
        f"{hosts.alpha.address}\n"
    )
