"""TorchrunLauncher: workers started by torch.distributed.run. A vendor's launcher starts from this one."""

from __future__ import annotations

import re
import signal
from typing import ClassVar

from flagperf.api.device import Device
from flagperf.api.launcher import LaunchCommand, Launcher, NodeShare, RankFailure, Setting
from flagperf.units import exit_status

LOOPBACK = "127.0.0.1"


class TorchrunLauncher(Launcher):
    """torch.distributed.run with a fixed address and no restarts. A single worker is started without it, which saves an
    import of torch. On one machine the store of torch.distributed.run listens on the loopback address alone
    (`loopback_torchrun`). A vendor's launcher starts from this one."""

    name = "torchrun"

    visibility_variables: ClassVar[tuple[str, ...]] = ()
    """Set to the cards of this run, all to the same value."""

    forbidden_variables: ClassVar[tuple[str, ...]] = ()
    """Never passed on to workers, whoever set them."""

    interface_variables: ClassVar[tuple[str, ...]] = ()
    """Set to the network interface of a job of several nodes, beside gloo's own."""

    def visible_name(self, device: Device) -> str:
        """Return the word by which a visibility variable names a card."""
        return str(device.physical_index)

    def vendor_settings(self, share: NodeShare) -> list[Setting]:
        """Return further variables that these cards need, each with its reason."""
        return []

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        # Where the ranks meet. On one machine nobody else has to reach it.
        address, settings = LOOPBACK if share.num_nodes == 1 else share.master_address, self.settings(share)
        if share.num_nodes * share.num_workers == 1:
            given = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
            given |= {"MASTER_ADDR": address, "MASTER_PORT": str(share.master_port)}
            settings += [Setting(name, value, "a single worker is its own launcher") for name, value in given.items()]
            return LaunchCommand((python, "-m", worker_module), tuple(settings), self.forbidden_variables)
        argv = (
            python,
            "-m",
            "flagperf.kit.loopback_torchrun" if address == LOOPBACK else "torch.distributed.run",
            f"--nnodes={share.num_nodes}",
            f"--node-rank={share.node_index}",
            f"--nproc-per-node={share.num_workers}",
            f"--master-addr={address}",
            f"--master-port={share.master_port}",
            "--max-restarts=0",
            "-m",
            worker_module,
        )
        return LaunchCommand(argv, tuple(settings), self.forbidden_variables)

    def settings(self, share: NodeShare) -> list[Setting]:
        reason = f"{share.allowed_cores} allowed cores over {share.host_workers} workers of this machine"
        cards = ",".join(self.visible_name(device) for device in share.devices)
        visibility = [Setting(name, cards, "the cards of this run") for name in self.visibility_variables]
        names = ("GLOO_SOCKET_IFNAME", *self.interface_variables) if share.interface else ()
        interface = [Setting(name, share.interface, "reaches the first node", only_if_unset=True) for name in names]
        threads = Setting("OMP_NUM_THREADS", str(share.num_threads), reason)
        return [threads, *visibility, *interface, *self.vendor_settings(share)]

    def explain_failures(self, log: str) -> list[RankFailure]:
        """Return all failures that the last report lists. Its "root cause" is the failure with the lowest time, in
        whole seconds: of several in one second it is any, so it is not used. torchrun warns of each process that it
        stops; if its warnings are turned off, SIGTERM is taken as its own."""
        others, _, root = log.rpartition("\nFailures:\n")[2].partition("\nRoot Cause (first observed failure):\n")
        if not _LISTED.search(root):
            return []  # no report, or one that was cut off
        stopped_pids = set(_STOPPED.findall(log))
        failures = []
        for rank, text, pid in _LISTED.findall(others) + _LISTED.findall(root):
            code = int(text)
            was_stopped = pid in stopped_pids or (code == -signal.SIGTERM and not stopped_pids)
            failures.append(RankFailure(int(rank), exit_status(code), was_stopped, code))
        return sorted(failures, key=lambda failure: failure.rank)


_LISTED = re.compile(
    r"^ {2}rank {6}: (\d+) \(local_rank: \d+\)\n {2}exitcode {2}: (-?\d+) \(pid: (\d+)\)", re.MULTILINE
)
_STOPPED = re.compile(r"Sending process (\d+) closing signal")
