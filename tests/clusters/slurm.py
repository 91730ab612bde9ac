"""A real Slurm in this machine: a controller and four nodes, n1 to n4, with munge between them.

Everything is in one folder and on free ports, so that neither a Slurm of this machine nor that of another test is
disturbed. Each daemon is a machine of its own (machine.py): a node has its own host name and process ids, and stopping
it is a node's failure. They share this machine's network, at 127.0.0.1, and nobody can resolve their names. There is no
slurmdbd, so `sacct` does not work.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
from machine import Machine, run
from needs import program

NODES = ("n1", "n2", "n3", "n4")
NUM_GPUS = 2
"""Of each node. They are character devices that do nothing; Slurm counts and hands them out."""


class Slurm:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.environment = {**inherited, "SLURM_CONF": str(self.configuration)}
        """Of every command that talks to this Slurm, and not to the one that the tests may run under."""
        self._machines: dict[str, Machine] = {}
        self._ports = dict(zip(("control", *NODES), free_ports(1 + len(NODES)), strict=True))

    def start(self) -> None:
        self._write_files()
        self._start_munge()
        self._start("control", "slurmctld", "-D", "-f", str(self.configuration))
        for node in NODES:
            self._start_node(node)
        self._machines["control"].wait_for(
            lambda: all(self.node_state(node) == "idle" for node in NODES), "four idle nodes"
        )

    def stop(self) -> None:
        self.end_clients()
        for machine in self._machines.values():
            machine.stop()

    def end_clients(self) -> None:
        """What a test that failed left of its commands: salloc (22.05) may spin for ever where a node was lost."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("SLURM_CONF") == str(self.configuration)
                if is_ours and not any(machine.holds(process) for machine in self._machines.values()):
                    process.kill()

    def node(self, name: str) -> Machine:
        return self._machines[name]

    def node_state(self, name: str) -> str:
        """In Slurm's word, such as "idle", "allocated" or "down*"; empty while the controller does not answer."""
        with contextlib.suppress(RuntimeError):
            return self.ask("sinfo", "--noheader", "--nodes", name, "--format", "%T").strip()
        return ""

    def set_down(self, node: str, reason: str = "broken") -> None:
        """As an operator does. It ends the jobs there."""
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        """Back into service after `set_down` or `fail`."""
        if not self.node(node).is_running():
            self._start_node(node)
        self.node(node).wait_for(lambda: self._is_resumed(node), "idle state")

    def _is_resumed(self, node: str) -> bool:
        """A node that has just come back passes through states that Slurm does not resume from."""
        if self.node_state(node) != "idle":
            with contextlib.suppress(RuntimeError):
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return self.node_state(node) == "idle"

    def fail(self, node: str) -> None:
        """As by pulling its plug. The controller notices after SlurmdTimeout."""
        self.node(node).stop()

    def job_state(self, job: str) -> str:
        """In Slurm's word, such as "RUNNING"; of an ended job for some minutes."""
        (line,) = self.ask("scontrol", "show", "job", "--oneliner", job).splitlines()
        return dict(field.split("=", 1) for field in line.split() if "=" in field)["JobState"]

    def final_state(self, job: str) -> str:
        """Waits for its end, which by a time limit comes up to 30 s late: the controller looks no more often."""
        unfinished = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        self._machines["control"].wait_for(lambda: self.job_state(job) not in unfinished, f"the end of job {job}")
        return self.job_state(job)

    def cancel(self, job: str) -> None:
        self.ask("scancel", job)

    def ask(self, command: str, *arguments: str) -> str:
        """What a command of Slurm printed. Raises, with what it said, if it failed."""
        return run(program(command), *arguments, environment=self.environment)

    def _start(self, name: str, daemon: str, *arguments: str) -> None:
        log = self.folder / f"{name}.log"
        command = [program(daemon), *arguments]
        self._machines[name] = Machine(name, command, log, environment=self.environment)

    def _start_node(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node, "-f", str(self.configuration))

    def _start_munge(self) -> None:
        key, socket_path = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        files = {"key-file": key, "socket": socket_path}
        files |= {f"{kind}-file": self.folder / f"munge.{kind}" for kind in ("log", "pid", "seed")}
        # Forced: below /tmp, which everybody may write, munged trusts no file.
        options = [
            "--foreground",
            "--force",
            "--origin=127.0.0.1",
            *[f"--{name}={path}" for name, path in files.items()],
        ]
        self._start("munge", "munged", *options)
        self._machines["munge"].wait_for(socket_path.exists, "its socket")

    def _write_files(self) -> None:
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        for index in range(NUM_GPUS):
            os.mknod(self.folder / f"gpu{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # what /dev/null is
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{NUM_GPUS - 1}]\n")
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": "control(127.0.0.1)",
            "SlurmctldPort": self._ports["control"],
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.folder}/munge.socket",
            "CredType": "cred/munge",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "%n" / "slurmd.pid",
            "PlugStackConfig": "/dev/null",
            # Control groups and system services are not needed.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "SlurmdParameters": "config_overrides",  # nodes may have more than this machine
            "ReturnToService": "1",
            # Seconds. Shorter than usual, so that failures are noticed while a test waits.
            "SlurmdTimeout": "20",
            "KillWait": "20",  # a command has to write how its run ended, however busy the machine is
            "SchedulerParameters": "batch_sched_delay=0",  # else each job of sbatch waits two seconds more
            # A job of the partition `urgent` ends others that are in its way.
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "CANCEL",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for node in NODES:
            resources = f"CPUs=2 RealMemory=4000 Gres=gpu:{NUM_GPUS}"
            lines.append(f"NodeName={node} NodeAddr=127.0.0.1 Port={self._ports[node]} {resources}")
        for partition in ("all Default=YES PriorityTier=1", "urgent PriorityTier=2"):
            lines.append(f"PartitionName={partition} Nodes={','.join(NODES)} MaxTime=30 State=UP")
        self.configuration.write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def four_nodes(folder: Path) -> Iterator[Slurm]:
    slurm = Slurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
