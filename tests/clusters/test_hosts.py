from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hosts import Hosts
from podman import in_container


def text_of(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout


def test_each_host_has_its_own_name_interface_and_temporary_files(hosts: Hosts, tmp_path: Path) -> None:
    for host in (hosts.alpha, hosts.beta):
        answer = text_of(hosts.ssh(host, "hostname; ls /sys/class/net; cat /etc/hosts")).split()
        assert answer[0] == host.name
        assert answer[1:3] == sorted(["lo", host.interface])
        assert "127.0.1.1" in answer
        assert host.address not in answer
        assert text_of(hosts.ssh(host, f"test -e {tmp_path} || echo absent")) == "absent\n"


def test_a_host_with_another_key_than_the_known_one_is_refused(hosts: Hosts) -> None:
    command = ["ssh", "-F", str(hosts.ssh_config_with_wrong_key)]
    assert text_of([*command, "alpha", "hostname"]) == "alpha\n"
    refused = subprocess.run([*command, "beta", "hostname"], capture_output=True, text=True, check=False, timeout=600)
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Host key verification failed" in refused.stderr


def test_what_runs_on_a_host_goes_on_without_its_link_and_not_over_a_reboot(hosts: Hosts) -> None:
    with subprocess.Popen(hosts.ssh(hosts.beta, "echo there; exec sleep 1000"), stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout and sleeper.stdout.readline() == b"there\n"
        with hosts.beta.without_link():
            another = ["ssh", "-o", "ConnectTimeout=1", "-F", str(hosts.ssh_config), "beta", "true"]
            assert subprocess.run(another, stderr=subprocess.DEVNULL, check=False, timeout=600).returncode == 255
            assert len(hosts.beta.machine.processes("sleep 1000")) == 1
            assert sleeper.poll() is None
            hosts.beta.stop()
        sleeper.kill()
    hosts.beta.start()
    assert hosts.beta.machine.processes("sleep") == []
    assert text_of(hosts.ssh(hosts.beta, "hostname")) == "beta\n"


def test_ssh_and_a_container_together_carry_every_byte(hosts_with_image: Hosts) -> None:
    sent = os.urandom(1_000_000)
    command = hosts_with_image.ssh(hosts_with_image.alpha, *in_container("cat"))
    done = subprocess.run(command, input=sent, stdout=subprocess.PIPE, check=True, timeout=600)
    assert done.stdout == sent
    assert hosts_with_image.alpha.podman.containers() == []
