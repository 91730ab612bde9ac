"""Launcher: how workers start on a node with such cards."""

from __future__ import annotations

import abc
import re
import signal
from collections import Counter
from collections.abc import Collection, Mapping
from typing import ClassVar

import msgspec

from flagperf.api.cpus import read_cpu_list
from flagperf.api.device import Device
from flagperf.api.machine import Machine
from flagperf.units import exit_status


class NodeShare(msgspec.Struct, frozen=True):
    """One node's part of a Job, all that a launcher needs to know."""

    node_index: int
    num_nodes: int
    devices: tuple[Device, ...]
    master_address: str
    master_port: int
    allowed_cores: int
    """Cores that this node's processes may use."""
    host_workers: int
    """Workers on this machine, those of other nodes that share it included."""

    @property
    def num_workers(self) -> int:
        return len(self.devices)

    @property
    def num_threads(self) -> int:
        """Of each worker: an even part of the host's cores, and of those near its card where workers are bound to
        them."""
        near = Counter(device.near_cpus for device in self.devices if device.near_cpus)
        parts = [len(read_cpu_list(cpus)) // num_workers for cpus, num_workers in near.items()]
        return max(1, min([self.allowed_cores // self.host_workers, *parts]))


class Setting(msgspec.Struct, frozen=True):
    """An environment variable of the workers, with the reason that `flagperf plan` prints."""

    name: str
    value: str
    reason: str
    only_if_unset: bool = False
    """True: a value that the user has set stays."""


class LaunchCommand(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    settings: tuple[Setting, ...] = ()
    remove: tuple[str, ...] = ()
    """Variables that must not reach the workers."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in inherited.items() if name not in self.remove}
        settings = [each for each in self.settings if not (each.only_if_unset and each.name in kept)]
        return {**kept, **{setting.name: setting.value for setting in settings}}


class RankFailure(msgspec.Struct, frozen=True):
    """A worker that did not end with exit code 0."""

    rank: int
    description: str
    was_stopped: bool = False
    """The launcher itself ended this worker, because another one had failed: it is no cause."""


class Launcher(abc.ABC):
    vendor: ClassVar[str]
    name: ClassVar[str]

    env_script_path: ClassVar[str] = ""
    """Where a shell script usually is that has to be sourced before torch can be imported: an absolute path, shown in
    plans for machines elsewhere. Empty: none is needed."""

    @abc.abstractmethod
    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        """The command that starts this node's workers as `python -m worker_module`, one per device. Each worker finds
        RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment."""

    def env_script(self, machine: Machine) -> str | None:
        """That script on this machine, or None. The agent runs it once and takes over its variables."""
        script = machine.root / self.env_script_path.lstrip("/")
        return str(script) if self.env_script_path and script.is_file() else None

    def explain_failures(self, log: str) -> list[RankFailure]:
        """Every worker of this node that failed, from the launcher's own output. Empty where it does not say."""
        return []


class TorchrunLauncher(Launcher):
    """torch.distributed.run with a fixed address and no restarts. A single worker is started without it, which saves an
    import of torch. A vendor's launcher starts from this one."""

    name = "torchrun"

    visibility_variables: ClassVar[tuple[str, ...]] = ()
    """Set to the cards of this run, all to the same value."""

    forbidden_variables: ClassVar[tuple[str, ...]] = ()
    """Never passed on to workers, whoever set them."""

    def visible_name(self, device: Device) -> str:
        """What a visibility variable calls a card."""
        return str(device.physical_index)

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        """What these cards need besides, each with its reason."""
        return []

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        if share.num_nodes * share.num_workers == 1:
            settings = (*self.settings(share), *_single_worker_settings(share))
            return LaunchCommand((python, "-m", worker_module), settings, self.forbidden_variables)
        argv = (
            python, "-m", "torch.distributed.run",
            f"--nnodes={share.num_nodes}", f"--node-rank={share.node_index}", f"--nproc-per-node={share.num_workers}",
            f"--master-addr={share.master_address}", f"--master-port={share.master_port}", "--max-restarts=0",
            "-m", worker_module,
        )  # fmt: skip
        return LaunchCommand(argv, tuple(self.settings(share)), self.forbidden_variables)

    def settings(self, share: NodeShare) -> list[Setting]:
        reason = f"{share.allowed_cores} allowed cores over {share.host_workers} workers of this machine"
        cards = ",".join(self.visible_name(device) for device in share.devices)
        visibility = [Setting(name, cards, "the cards of this run") for name in self.visibility_variables]
        return [Setting("OMP_NUM_THREADS", str(share.num_threads), reason), *visibility, *self.vendor_settings(share)]

    def explain_failures(self, log: str) -> list[RankFailure]:
        """All that the last report lists. Its "root cause" is the failure with the lowest time, in whole seconds: of
        several in one second it is any, so that nothing can be made of that."""
        others, _, root = log.rpartition("\nFailures:\n")[2].partition("\nRoot Cause (first observed failure):\n")
        if not _LISTED.search(root):
            return []  # no report, or one that was cut off
        stopped_pids = set(_STOPPED.findall(log))
        failures = [
            RankFailure(int(rank), exit_status(int(code)), _was_stopped(int(code), pid, stopped_pids))
            for rank, code, pid in _LISTED.findall(others) + _LISTED.findall(root)
        ]
        return sorted(failures, key=lambda failure: failure.rank)


def _single_worker_settings(share: NodeShare) -> list[Setting]:
    """What torch.distributed.run would set."""
    address, port = share.master_address, str(share.master_port)
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": address, "MASTER_PORT": port}
    return [Setting(name, value, "a single worker is its own launcher") for name, value in variables.items()]


_LISTED = re.compile(
    r"^ {2}rank {6}: (\d+) \(local_rank: \d+\)\n {2}exitcode {2}: (-?\d+) \(pid: (\d+)\)", re.MULTILINE
)
_STOPPED = re.compile(r"Sending process (\d+) closing signal")


def _was_stopped(code: int, pid: str, stopped_pids: Collection[str]) -> bool:
    """torchrun warns of each process that it stops; where its warnings are turned off, SIGTERM is taken as its own."""
    return pid in stopped_pids or (code == -signal.SIGTERM and not stopped_pids)
