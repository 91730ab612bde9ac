"""Nodes of Slurm. Inside an allocation its nodes are used, else one is asked for; each agent is a step of its own.

Nothing that an option says reaches a shell: options are words of salloc, sbatch and srun.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.api import Allocation, Cluster, JobState, Node
from flagperf.builtin.ssh import check_installed, check_options, check_python, first_names, last_words
from flagperf.errors import BadInput, NodeFailed, ToolFailed
from flagperf.kit import run_tool
from flagperf.processes import die_with_parent

QUESTION_SECONDS = 5.0
"""Time limit of one question to Slurm's controller."""

EXPLAIN_SECONDS = 5.0
"""Time limit of all questions about a node that was lost."""

ENDING_SECONDS = 4.0
"""How long a job that Slurm is ending is waited for: Slurm says how it ended once the last process has."""

SUBMIT_SECONDS = 60.0

QUEUE_SECONDS = 30.0
"""Between two questions why a job is still in the queue."""

RELEASE_SECONDS = 10.0


def explain(job: str, node: str) -> str:
    """Return why a node of a job may have been lost, or an empty text where Slurm knows of nothing."""
    deadline = time.monotonic() + EXPLAIN_SECONDS
    try:
        return "; ".join(filter(None, [_job_trouble(job, deadline), _node_trouble(node, deadline)]))
    except ToolFailed as error:
        return str(error)


_QUEUED = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})

_AT_WORK = frozenset(
    {"CONFIGURING", "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)

NEVER = frozenset(
    {"AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionConfig", "PartitionNodeLimit"}
    | {"PartitionTimeLimit"}
)
"""Reasons that only another request, or an operator, can change."""

_SAID = {
    "BOOT_FAIL": "ended, because a node did not boot",
    "CANCELLED": "was cancelled",
    "COMPLETED": "has ended",
    "COMPLETING": "is ending",
    "DEADLINE": "ended at its deadline",
    "FAILED": "has failed",
    "NODE_FAIL": "ended, because one of its nodes failed",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted by another job",
    "REVOKED": "was taken by another cluster",
    "RUNNING": "is running",
    "STOPPED": "is stopped",
    "SUSPENDED": "is suspended",
    "TIMEOUT": "reached its time limit",
}


class QueueEntry(msgspec.Struct, frozen=True):
    """A job as squeue shows it."""

    state: str
    time_limit: str
    first_node: str
    """Where the command of sbatch runs; `n/a` before it does."""
    reason: str

    @property
    def phase(self) -> Literal["queued", "running", "ended"]:
        if self.state in _QUEUED:
            return "queued"
        return "running" if self.state in _AT_WORK else "ended"

    def sentence(self, job: str, was_running: bool = False) -> str:
        words = _SAID.get(self.state, f"is in the state {self.state}")
        if self.phase == "queued":
            why = f"{self.state}, {self.reason}" if self.reason != "None" else self.state
            words = f"{'was put back into' if was_running else 'is in'} the queue ({why})"
        elif self.state == "TIMEOUT":
            words = f"reached its time limit of {self.time_limit}"
        return f"Slurm's job {job} {words}"


def queue_entry(job: str, seconds: float = QUESTION_SECONDS) -> QueueEntry | None:
    """Return None where the controller has forgotten the job, as it does some minutes after its end. Raise ToolFailed
    where there is no answer."""
    command = ["squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T|%l|%B|%r"]
    output = run_tool(command, seconds)
    if not output.ok and "invalid job id" not in output.stderr.lower():
        raise ToolFailed(f"Slurm does not say what became of job {job}: {last_words(output)}")
    fields = output.stdout.strip().split("|", 3)
    return QueueEntry(*fields) if len(fields) == 4 else None


def lost_command(job: str, entry: QueueEntry) -> str:
    """Return what Slurm says of a job whose command is on a node that is down. Such a job is still completing while
    Slurm ends what is left on the other nodes. Return an empty text where the command may be at work."""
    if entry.state != "NODE_FAIL" and (entry.state, entry.reason) != ("COMPLETING", "NodeDown"):
        return ""
    trouble = _node_trouble(entry.first_node, time.monotonic() + QUESTION_SECONDS)
    failed = msgspec.structs.replace(entry, state="NODE_FAIL").sentence(job)
    return f"{failed}; {trouble}" if trouble.startswith(_has_node_as(entry.first_node, "down")) else ""


def _job_trouble(job: str, deadline: float) -> str:
    """Return how the job ended, or an empty text where it goes on. Slurm says how when all of its processes have ended;
    one of these learns only what Slurm does with the job meanwhile."""
    completed_by = min(deadline, time.monotonic() + ENDING_SECONDS)
    while (found := queue_entry(job, _left(deadline))) and found.state in ("COMPLETING", "CONFIGURING", "RUNNING"):
        if state := _coming_state(job, found.reason, deadline):
            return msgspec.structs.replace(found, state=state).sentence(job, was_running=True)
        if found.state != "COMPLETING" or job == os.environ.get("SLURM_JOB_ID"):
            return ""
        if time.monotonic() > completed_by:
            break
        time.sleep(0.2)
    return found.sentence(job, was_running=True) if found else ""


def _coming_state(job: str, reason: str, deadline: float) -> str:
    """Return the state in which a job that Slurm ends will be listed, as far as its fields tell. Return an empty text
    where it goes on, or was cancelled."""
    if reason in _COMING:
        return _COMING[reason]
    output = run_tool(["scontrol", "show", "job", "--oneliner", job], _left(deadline))
    fields = dict(re.findall(r" (PreemptTime|Restarts)=(\S+)", output.stdout))
    if fields.get("PreemptTime", "None") not in ("None", "N/A"):
        return "PREEMPTED"
    own_starts = os.environ.get("SLURM_RESTART_COUNT", "0")
    return "REQUEUED" if fields.get("Restarts", own_starts) != own_starts else ""


_COMING = {"TimeLimit": "TIMEOUT", "NodeDown": "NODE_FAIL"}


def _node_trouble(name: str, deadline: float) -> str:
    """Return what Slurm says of a node that does not work. `*` after its state: it does not respond."""
    output = run_tool(["sinfo", "--noheader", f"--nodes={name}", "--format=%T|%E"], _left(deadline))
    state, _, reason = output.stdout.strip().partition("\n")[0].partition("|")
    if not output.ok or not re.match(r"down|fail|error|unknown|.*\*$", state):
        return ""
    why = f" ({reason.strip()})" if reason.strip() not in ("", "none") else ""
    return f"{_has_node_as(name, state)}{why}"


def _has_node_as(name: str, state: str) -> str:
    return f"Slurm has node {name} as {state}"


def _left(deadline: float) -> float:
    return max(0.5, deadline - time.monotonic())


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    partition: str = ""
    """Where to ask for nodes. Empty: Slurm's default."""
    account: str = ""
    """Whom to charge."""
    gres: str = ""
    """Cards of each node, such as `gpu:8`. Empty: the vendor's word with the number of cards, where there is one.
    `none`: not asked for, for sites whose Slurm knows no cards."""
    time: int | str = 60
    """When Slurm ends the job, whatever happened to flagperf: minutes, or a text as Slurm reads it, such as
    `1-12:00:00`."""
    constraint: str = ""
    """Features that the nodes must have."""
    reservation: str = ""
    """Take the nodes from this reservation."""
    nodelist: str = ""
    """Nodes that must be among those given, such as `node[01-04]`."""
    exclusive: bool = True
    """Ask for whole nodes: all of their CPUs and memory, nobody beside. Without it a node gives one CPU, unless
    `arguments` say more."""
    arguments: tuple[str, ...] = ()
    """Further words for salloc and sbatch, each as `--name=value` or `--name`, such as `--qos=high`."""
    step_arguments: tuple[str, ...] = ()
    """Further words for the srun of each node's step, of the same form."""
    python: str = ""
    """The Python that has flagperf on the nodes. Empty: the same path as here."""


class SlurmAllocation(Allocation):
    def __init__(self, job: str, nodes: Sequence[Node], step_arguments: Sequence[str], held: HeldJob | None) -> None:
        self.job, self.nodes = job, tuple(nodes)
        self._step_arguments, self._held = step_arguments, held

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        """Return srun with a step of this node alone: in one step of all nodes their lines would be cut and mixed. Not
        unbuffered: that gives the agent a terminal in place of pipes."""
        return [
            "srun",
            *self._step_arguments,
            f"--jobid={self.job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node.name}",
            "--overlap",
            "--mpi=none",
            "--cpu-bind=none",  # one task would else be bound to one core at some sites
            "--chdir=/",
            *command,
        ]

    def explain(self, node: Node) -> str:
        return explain(self.job, node.name)

    def release(self) -> None:
        if self._held is not None:
            self._held.end()


class SlurmCluster(Cluster):
    name = "slurm"
    options = SlurmOptions
    container_options = ("pyxis",)

    def allocate(self, num_nodes: int, options: SlurmOptions) -> Allocation:
        _check(self.name, options)
        own_job = os.environ.get("SLURM_JOB_ID", "")
        if own_job:
            found = queue_entry(_checked_job(own_job))
            if found is None or found.phase != "running":
                what = found.sentence(own_job) if found else f"Slurm knows no job {own_job}"
                raise BadInput(
                    f"SLURM_JOB_ID is {own_job}, but {what}; leave that shell, or unset SLURM_JOB_ID to ask for nodes"
                )
            return _allocation(own_job, os.environ.get("SLURM_JOB_NODELIST", ""), num_nodes, options, None)
        held = HeldJob(_request(num_nodes, options))
        try:
            job, node_list = held.wait()
            return _allocation(job, node_list, num_nodes, options, held)
        except BaseException:  # Ctrl-C in the queue too
            held.end()
            raise

    def num_nodes(self, options: SlurmOptions) -> int:
        """Return the nodes of the allocation that this command is in, or one."""
        given = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return int(given) if given.isdecimal() else 1

    def submit(self, command: Sequence[str], num_nodes: int, options: SlurmOptions, log: str) -> str:
        """Submit a job. It needs a folder that the nodes share: its command writes on the first node."""
        _check(self.name, options)
        with tempfile.NamedTemporaryFile("w", prefix="flagperf-", suffix=".sh") as script:
            script.write(f"#!/bin/sh\nexec {shlex.join(command)}\n")
            script.flush()
            own = ["--parsable", "--no-requeue", "--open-mode=append", f"--output={log.replace('%', '%%')}"]
            output = run_tool(["sbatch", *_request(num_nodes, options), *own, script.name], SUBMIT_SECONDS)
        if not output.ok:
            raise BadInput(f"sbatch did not take the job: {last_words(output)}")
        job = output.stdout.strip().partition(";")[0]
        with contextlib.suppress(ToolFailed):  # it is in the queue, whatever the controller does now
            found = queue_entry(job)
            if found is not None and found.phase == "queued" and found.reason in NEVER:
                _answer("scancel", job)
                raise _never(found.reason)
        return job

    def job_state(self, job: str) -> JobState:
        found = queue_entry(_checked_job(job))
        if found is None:
            return JobState("unknown", f"Slurm knows no job {job} any more")
        lost = lost_command(job, found)
        return JobState("ended", lost) if lost else JobState(found.phase, found.sentence(job))

    def cancel(self, job: str) -> None:
        state = self.job_state(job)
        if state.phase in ("ended", "unknown"):  # scancel says nothing then
            raise BadInput(f"there is nothing to cancel: {state.reason}")
        _answer("scancel", job)


def _check(cluster: str, options: SlurmOptions) -> None:
    check_installed("srun", "flagperf has to be started where Slurm's commands are")
    check_options(cluster, options)
    check_python(cluster, options.python)
    for name in ("arguments", "step_arguments"):
        for word in getattr(options, name):
            if not _ARGUMENT.match(word):
                raise BadInput(f"option {name} of cluster slurm: {word!r} is not of the form --name=value or --name")


_ARGUMENT = re.compile(r"--[a-z]")

_ASKED = ("partition", "account", "gres", "time", "constraint", "reservation", "nodelist")


def _request(num_nodes: int, options: SlurmOptions) -> list[str]:
    """Return what salloc and sbatch are asked for. The user's words come first, so that they cannot change ours."""
    asked = {name: getattr(options, name) for name in _ASKED}
    if asked["gres"] == "none":
        asked["gres"] = ""
    whole = ["--exclusive", "--mem=0"] if options.exclusive else []
    named = [f"--{name}={value}" for name, value in asked.items() if value]
    return [*options.arguments, "--job-name=flagperf", f"--nodes={num_nodes}", *whole, *named]


def _allocation(
    job: str, node_list: str, num_nodes: int, options: SlurmOptions, held: HeldJob | None
) -> SlurmAllocation:
    names = first_names(_answer("scontrol", "show", "hostnames", node_list).split(), num_nodes, f"Slurm's job {job}")
    addresses: dict[str, str] = {}
    for line in _answer("sinfo", "--Node", "--noheader", f"--nodes={node_list}", "--format=%N|%o").splitlines():
        name, _, address = line.strip().partition("|")
        with contextlib.suppress(ValueError):  # a name: it often resolves on the nodes alone, or nowhere
            addresses[name] = str(ipaddress.ip_address(address))
    nodes = [Node(name, addresses.get(name, ""), options.python) for name in names]
    return SlurmAllocation(job, nodes, options.step_arguments, held)


class HeldJob:
    """An allocation for as long as this process lives. Where flagperf was killed, the kernel tells salloc, which takes
    the job out of the queue or gives the nodes back; and its command ends with its stdin."""

    _HOLD = ("sh", "-c", 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat')

    def __init__(self, request: Sequence[str]) -> None:
        self._granted = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        self._process = subprocess.Popen(
            ["salloc", *request, *self._HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then gives the job back
            preexec_fn=die_with_parent,
        )

    def wait(self) -> tuple[str, str]:
        """Return the job and its nodes as soon as Slurm gives them. Raise BadInput or NodeFailed if it never will."""
        assert self._process.stdout
        told, seconds = "", 2.0
        while not select.select([self._process.stdout], [], [], seconds)[0]:
            told, seconds = self._tell_why(told), QUEUE_SECONDS
        self._granted, _, node_list = self._process.stdout.readline().strip().partition(" ")
        if self._granted:
            return self._granted, node_list
        said = self._said().strip().splitlines() or ["salloc said nothing"]
        words = next((line for line in said if "error" in line.lower()), said[-1])
        if job := self._job():
            raise NodeFailed(f"Slurm's job {job} gave no nodes: {words}")
        raise BadInput(f"no nodes: {words}")

    def end(self) -> None:
        """Give the nodes back, or take the job out of the queue. scancel comes after salloc has ended, in case that it
        was killed: told by both at once, salloc (22.05) may never end."""
        job = self._job()
        with self._process:  # closes its streams
            assert self._process.stdin
            self._process.stdin.close()
            if not self._granted:
                self._process.terminate()
            try:
                self._process.wait(RELEASE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if job:
            run_tool(["scancel", job], QUESTION_SECONDS)
        self._errors.close()

    def _tell_why(self, told: str) -> str:
        """Print why the job waits, unless that was told. Raise BadInput for a job that can never start."""
        job = self._job()
        found = None
        with contextlib.suppress(ToolFailed):  # asked again later
            found = queue_entry(job) if job else None
        if found is None or found.phase != "queued" or found.reason == told:
            return told
        if found.reason in NEVER:
            raise _never(found.reason)
        print(f"flagperf: {found.sentence(job)}", file=sys.stderr)
        return found.reason

    def _job(self) -> str:
        if self._granted:
            return self._granted
        found = re.search(r"job allocation (\d+)", self._said())
        return found[1] if found else ""

    def _said(self) -> str:
        """Read at an offset of its own: salloc goes on writing at the shared one."""
        return os.pread(self._errors.fileno(), 1 << 16, 0).decode(errors="replace")


def _never(reason: str) -> BadInput:
    words = f"Slurm would never start the job: {reason}; it was taken back"
    if reason == "PartitionTimeLimit":
        words += "; the partition allows less than the option time (60 minutes where none is given)"
    return BadInput(words)


def _checked_job(job: str) -> str:
    if not job.isascii() or not job.isdigit():
        raise BadInput(f"{job!r} is not the number of a Slurm job")
    return job


def _answer(*command: str) -> str:
    output = run_tool(command, QUESTION_SECONDS)
    if not output.ok:
        raise ToolFailed(f"{' '.join(command)} failed: {last_words(output)}")
    return output.stdout
