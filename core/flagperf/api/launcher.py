"""Launcher: how workers start on a node with such cards."""

from __future__ import annotations

import abc
import os
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from flagperf.api.device import Device
from flagperf.api.machine import Machine


class NodeShare(msgspec.Struct, frozen=True):
    """One node's part of a Job, all that a launcher needs to know."""

    node_index: int
    """From 0; the master is node 0."""
    num_nodes: int
    """Of the job."""
    devices: tuple[Device, ...]
    """This node's cards in the order of the local ranks."""
    master_address: str
    """What the ranks of all nodes connect to."""
    master_port: int
    """A port that was free on the master."""
    allowed_cores: int
    """Cores that this node's processes may use."""
    host_workers: int
    """Workers on this machine, those of other nodes that share it included."""
    interface: str = ""
    """The network interface by which this node reaches the master, in a job of several nodes."""

    @property
    def num_workers(self) -> int:
        return len(self.devices)

    @property
    def num_threads(self) -> int:
        """Threads of each worker: an even part of the host's cores, and of those near its card if workers are bound to
        them."""
        near = Counter(device.near_cpus for device in self.devices if device.near_cpus)
        parts = [len(read_cpu_list(cpus)) // num_workers for cpus, num_workers in near.items()]
        return max(1, min([self.allowed_cores // self.host_workers, *parts]))


class Setting(msgspec.Struct, frozen=True):
    """An environment variable of the workers, with the reason that `flagperf plan` prints."""

    name: str
    """Of the variable."""
    value: str
    """Never empty: a variable that must not be there belongs in LaunchCommand.remove."""
    reason: str
    """For the person who reads the plan."""
    only_if_unset: bool = False
    """True: a value that the user has set stays."""


class LaunchCommand(msgspec.Struct, frozen=True):
    """The command that the agent starts on a node."""

    argv: tuple[str, ...]
    """The command as a list, without a shell."""
    settings: tuple[Setting, ...] = ()
    """What workers get in their environment."""
    remove: tuple[str, ...] = ()
    """Variables that must not reach the workers."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in inherited.items() if name not in self.remove}
        settings = [each for each in self.settings if not (each.only_if_unset and each.name in kept)]
        return {**kept, **{setting.name: setting.value for setting in settings}}


class ContainerNeeds(msgspec.Struct, frozen=True):
    """The needs of a container that uses the vendor's cards."""

    devices: tuple[str, ...] = ()
    """Device files and folders of them; `*` and `[0-9]` stand for those that a node has. A CDI name
    (`vendor/class=name`) is one too."""
    groups: tuple[str, ...] = ()
    """Supplementary groups, such as `video`."""
    mounts: tuple[str, ...] = ()
    """Folders and files of the host that appear at the same path, read-only; `*` and `[0-9]` as in devices."""
    security_options: tuple[str, ...] = ()
    """Such as `seccomp=unconfined`. Never more than the cards need; containers are not privileged."""
    apptainer_options: tuple[str, ...] = ()
    """Of `apptainer exec`, where it has some for these cards: it shows all device files, and knows no CDI names."""


class RankFailure(msgspec.Struct, frozen=True):
    """A worker that did not end with exit code 0."""

    rank: int
    """Of all ranks of the job, not of this node."""
    description: str
    """How it ended, such as `killed by SIGKILL`."""
    was_stopped: bool = False
    """The launcher itself ended this worker, because another one had failed: it is no cause."""
    exit_code: int | None = None
    """Where the launcher says it, negative for a signal. Reports then word it in their own language."""


class Launcher(abc.ABC):
    """The way to start workers on a node with the vendor's cards. Extend kit.TorchrunLauncher."""

    vendor: ClassVar[str]
    """The word of the device backend that it belongs to."""
    name: ClassVar[str]
    """One word, recorded with a run."""

    env_script_path: ClassVar[str] = ""
    """Where a shell script usually is that has to be sourced before torch can be imported: an absolute path, shown in
    plans for machines elsewhere. Empty: none is needed."""

    gres_word: ClassVar[str] = ""
    """What Slurm calls the vendor's cards where a site has no word of its own, such as `gpu`: a job on 8 of them then
    asks for `gpu:8`. Empty: nothing is asked for unless the user says it."""

    @abc.abstractmethod
    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        """Return the command that starts this node's workers as `python -m worker_module`, one per device. Each worker
        finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment."""

    def env_script(self, machine: Machine) -> str | None:
        """Return that script on this machine, or None. The agent runs it once and takes over its variables."""
        script = machine.root / self.env_script_path.lstrip("/")
        return str(script) if self.env_script_path and script.is_file() else None

    def container_needs(self) -> ContainerNeeds:
        """Return what --container adds for these cards."""
        return ContainerNeeds()

    def explain_failures(self, log: str) -> list[RankFailure]:
        """Return every worker of this node that failed, from the launcher's own output. Empty if it does not say."""
        return []


# CPUs on a card's side of the machine: a worker that runs elsewhere reaches its card through the other socket.


def near_cpus(machine: Machine, pci_address: str) -> str:
    """Return the allowed CPUs near a card, as a list like `0-31,64-95`; "" if sysfs does not say or none is allowed."""
    listed = machine.read(f"/sys/bus/pci/devices/{pci_address}/local_cpulist") if pci_address else None
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return write_cpu_list(read_cpu_list(listed or "") & allowed)


def read_cpu_list(text: str) -> set[int]:
    """Read `0-2,5` as {0, 1, 2, 5}; a text of another form gives no CPUs."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or "0").isdigit():
            return set()
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def write_cpu_list(cpus: set[int]) -> str:
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], cpu]
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)
