"""Two hosts in this machine, alpha and beta, each with a network and a real sshd of its own.

    this machine 10.87.N.1 ---- switch (a bridge) ---- alpha 10.87.N.2, beta 10.87.N.3

The bridge is in a namespace of its own, where no firewall of this machine applies. This machine has one interface to
it, named `flagperf-N`, which disappears with the switch. Several tests may have such hosts at the same time: the kernel
gives a name, and so an N, to one of them only.

The hosts are as unhelpful as real ones: each knows its own name as 127.0.1.1, as on Debian, and no other names; their
interfaces have different names; there is no sftp; temporary folders are their own, those of the tests included. The
rest of the file system is this machine's, so that its Python is there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from machine import Machine, run
from needs import program
from podman import Podman

REPOSITORY = Path(__file__).parents[2]
PORT = 2222
INTERFACES = {"alpha": "eth0", "beta": "ens5"}


class Switch:
    """The bridge that joins the hosts with this machine."""

    def __init__(self, folder: Path) -> None:
        self._machine = Machine("switch", ["sleep", "infinity"], folder / "switch.log", own_network=True)

    def start(self) -> None:
        self._ip("link", "add", "bridge", "up", "type", "bridge")
        number = next((n for n in self._free_numbers() if self._claims(f"flagperf-{n}")), None)
        if number is None:
            raise RuntimeError("no free network in 10.87.0.0/16")
        self.network = network_of(number)
        run("ip", "address", "add", f"{self.network[1]}/24", "dev", f"flagperf-{number}")
        run("ip", "link", "set", f"flagperf-{number}", "up")
        self._ip("link", "set", "uplink", "up", "master", "bridge")

    def _free_numbers(self) -> list[int]:
        routes = [route["dst"] for route in json.loads(run("ip", "-json", "-4", "route"))]
        taken = [ipaddress.IPv4Network(route) for route in routes if route != "default"]
        return [n for n in range(256) if not any(other.subnet_of(network_of(n)) for other in taken)]

    def _claims(self, name: str) -> bool:
        """False: another test has just taken that name."""
        peer = ["peer", "name", "uplink", "netns", str(self._machine.pid)]
        try:
            run("ip", "link", "add", name, "type", "veth", *peer)
        except RuntimeError as error:
            if "File exists" not in str(error):
                raise
            return False
        return True

    def join(self, name: str, pid: int, interface: str, address: ipaddress.IPv4Address) -> None:
        """Lays a cable to the host whose first process this is. Its card keeps its number over a reboot."""
        card = f"02:87:00:00:00:{int(address) & 255:02x}"
        peer = ["peer", "name", interface, "address", card, "netns", str(pid)]
        with contextlib.suppress(RuntimeError):  # of an earlier boot; the kernel removes it, but not at once
            self._ip("link", "delete", name)
        self._ip("link", "add", name, "type", "veth", *peer)
        self._ip("link", "set", name, "up", "master", "bridge")
        inside = ["nsenter", f"--target={pid}", "--net", "ip"]
        run(*inside, "address", "add", f"{address}/24", "dev", interface)
        run(*inside, "link", "set", interface, "up")

    def set_link(self, name: str, state: str) -> None:
        self._ip("link", "set", name, state)

    def stop(self) -> None:
        self._machine.stop()

    def _ip(self, *arguments: str) -> None:
        run("nsenter", f"--target={self._machine.pid}", "--net", "ip", *arguments)


class Host:
    def __init__(self, name: str, address: str, folder: Path, switch: Switch, own_folders: Sequence[Path]) -> None:
        self.name, self.address, self.interface = name, address, INTERFACES[name]
        self.folder = folder
        self._switch = switch
        self._own_folders = own_folders
        self.podman = Podman(folder, Path("/run"), lambda *command: self.machine.enter(*command))
        """What a login there has as `podman`. It has no image at first."""
        self._write_files()

    @property
    def public_key(self) -> str:
        return (self.folder / "host_key.pub").read_text().strip()

    def start(self) -> None:
        self.machine = Machine(
            self.name,
            [program("sshd"), "-D", "-e", "-f", str(self.folder / "sshd_config")],
            self.folder / "log",
            set_up=self._set_up(),
            own_network=True,
            connect=lambda pid: self._switch.join(self.name, pid, self.interface, ipaddress.IPv4Address(self.address)),
        )
        try:
            self.machine.wait_for(self._accepts, f"an answer of its sshd at {self.address}:{PORT}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """As by pulling its plug: nothing says goodbye. `start` boots it again, with the same address and key."""
        if self.machine.is_running():
            self._switch.set_link(self.name, "down")
        self.machine.stop()

    def reboot(self) -> None:
        self.stop()
        self.start()

    @contextlib.contextmanager
    def without_link(self) -> Iterator[None]:
        """Its cable is pulled out: neither side is told, and everything on it goes on."""
        self._switch.set_link(self.name, "down")
        try:
            yield
        finally:
            if self.machine.is_running():
                self._switch.set_link(self.name, "up")

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, PORT), timeout=1):
            return True
        return False

    def _write_files(self) -> None:
        make_key(self.folder / "host_key")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        (self.folder / "resolv.conf").touch()
        # Images of systems often have root locked ("!"), which sshd refuses without PAM. "*": no password fits.
        (self.folder / "shadow").write_text("root:*:20000:0:99999:7:::\n")
        settings = {
            "ListenAddress": f"{self.address}:{PORT}",
            "HostKey": self.folder / "host_key",
            "PidFile": "none",
            "AuthorizedKeysFile": self.folder.parent / "user_key.pub",
            "StrictModes": "no",  # it refuses a file below /tmp, which everybody may write
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "SetEnv": " ".join(f"{name}={value}" for name, value in self.podman.settings.items()),
        }
        (self.folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    def _set_up(self) -> list[str]:
        kept = dict.fromkeys([self.folder.parent, REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)])
        hidden = [quote(str(path)) for path in kept if any(path.is_relative_to(own) for own in self._own_folders)]
        return [
            "mount -t tmpfs tmpfs /run",
            "mount -t tmpfs tmpfs /dev/shm",
            "mkdir /run/sshd /run/kept /run/cgroup",
            # /sys shows the interfaces of the namespace that mounted it. Containers need the control groups below it.
            "mount --rbind /sys/fs/cgroup /run/cgroup",
            "mount -t sysfs sysfs /sys",
            "mount --rbind /run/cgroup /sys/fs/cgroup",
            *[f"mkdir /run/kept/{i}; mount --bind {path} /run/kept/{i}" for i, path in enumerate(hidden)],
            *[f"mount -t tmpfs -o mode=1777 tmpfs {quote(str(own))}" for own in self._own_folders],
            *[f"mkdir -p {path}; mount --bind /run/kept/{i} {path}" for i, path in enumerate(hidden)],
            *[line for name in ("hosts", "resolv.conf", "shadow") for line in self._lines_for_own_file(name)],
            "ip link set lo up",
        ]

    def _lines_for_own_file(self, name: str) -> list[str]:
        target = Path("/etc", name).resolve()  # resolv.conf is often a link to a file below /run, which is empty now
        return [
            f"mkdir -p {quote(str(target.parent))}; [ -e {quote(str(target))} ] || touch {quote(str(target))}",
            f"mount --bind {quote(str(self.folder / name))} {quote(str(target))}",
        ]


class Hosts:
    """alpha and beta, and what a user needs to reach them: a key, an ssh_config and a known_hosts."""

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        self.folder = folder
        """The same on both hosts and here, unlike every other temporary folder."""
        self.alpha, self.beta = hosts
        known = {host.name: host.public_key for host in hosts}
        self.ssh_config = self._write_config("ssh_config", known)
        self.ssh_config_with_wrong_key = self._write_config(
            "wrong", {"alpha": self.alpha.public_key, "beta": self.alpha.public_key}
        )

    def ssh(self, host: Host, *command: str) -> list[str]:
        """The command that runs `command` there, as the user would type it. ssh joins the words with spaces."""
        return ["ssh", "-F", str(self.ssh_config), host.name, *command]

    def _write_config(self, name: str, known: dict[str, str]) -> Path:
        hosts = {"alpha": self.alpha, "beta": self.beta}
        known_hosts = self.folder / f"{name}.known_hosts"
        known_hosts.write_text("".join(f"[{hosts[host].address}]:{PORT} {key}\n" for host, key in known.items()))
        lines = [
            *[line for host in hosts.values() for line in (f"Host {host.name}", f"  HostName {host.address}")],
            "Host alpha beta",
            f"  Port {PORT}",
            "  User root",
            f"  IdentityFile {self.folder / 'user_key'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {known_hosts}",
            "  GlobalKnownHostsFile none",
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
            "  KexAlgorithms curve25519-sha256",  # a seventh of the time of the usual one
        ]
        config = self.folder / name
        config.write_text("\n".join(lines) + "\n")
        return config


@contextlib.contextmanager
def two_hosts(folder: Path, tests_folder: Path) -> Iterator[Hosts]:
    """Both hosts and this machine share `folder`. `tests_folder` is empty there, as are all temporary folders."""
    folder = folder.resolve()
    make_key(folder / "user_key")
    own_folders = [*dict.fromkeys([Path(tempfile.gettempdir()).resolve(), tests_folder.resolve()])]
    own_folders = [own for own in own_folders if not any(other in own.parents for other in own_folders)]
    with contextlib.ExitStack() as stack:
        switch = Switch(folder)
        stack.callback(switch.stop)
        switch.start()
        hosts = []
        for name, address in zip(INTERFACES, list(switch.network.hosts())[1:], strict=False):
            (folder / name).mkdir()
            host = Host(name, str(address), folder / name, switch, own_folders)
            host.start()
            stack.callback(host.stop)
            hosts.append(host)
        yield Hosts(folder, hosts)


def network_of(number: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"10.87.{number}.0/24")


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
