"""What Slurm says of its jobs and nodes."""

from __future__ import annotations

import os
import re
import time
from typing import Literal

import msgspec

from flagperf.builtin.remote import last_words
from flagperf.errors import ToolFailed
from flagperf.kit import run_tool

QUESTION_SECONDS = 5.0
"""For one question to Slurm's controller."""
EXPLAIN_SECONDS = 5.0
"""For all questions about a node that was lost."""
ENDING_SECONDS = 4.0
"""For a job that Slurm is ending: how it ended, Slurm says once the last process has."""


def explain(job: str, node: str) -> str:
    """Why a node of a job may have been lost; empty where Slurm knows of nothing."""
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
    """As squeue shows a job."""

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
        return f"Slurm's job {job} {self._words(was_running)}"

    def _words(self, was_running: bool) -> str:
        if self.phase == "queued":
            why = f"{self.state}, {self.reason}" if self.reason != "None" else self.state
            return f"{'was put back into' if was_running else 'is in'} the queue ({why})"
        if self.state == "TIMEOUT":
            return f"reached its time limit of {self.time_limit}"
        return _SAID.get(self.state, f"is in the state {self.state}")


def queue_entry(job: str, seconds: float = QUESTION_SECONDS) -> QueueEntry | None:
    """None where the controller has forgotten the job, as it does some minutes after its end. Raises ToolFailed where
    there is no answer."""
    command = ["squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T|%l|%B|%r"]
    output = run_tool(command, seconds)
    if not output.ok and "invalid job id" not in output.stderr.lower():
        raise ToolFailed(f"Slurm does not say what became of job {job}: {last_words(output)}")
    fields = output.stdout.strip().split("|", 3)
    return QueueEntry(*fields) if len(fields) == 4 else None


def lost_command(job: str, entry: QueueEntry) -> str:
    """Of a job whose nodes failed: what Slurm says of it where the node of its command is down. Such a job is still
    completing while Slurm ends what is left on the other nodes. Empty where the command may be at work."""
    if entry.state != "NODE_FAIL" and (entry.state, entry.reason) != ("COMPLETING", "NodeDown"):
        return ""
    trouble = _node_trouble(entry.first_node, time.monotonic() + QUESTION_SECONDS)
    failed = msgspec.structs.replace(entry, state="NODE_FAIL").sentence(job)
    return f"{failed}; {trouble}" if trouble.startswith(_has_node_as(entry.first_node, "down")) else ""


def _job_trouble(job: str, deadline: float) -> str:
    """Empty where the job goes on. How it ended, Slurm says when all of its processes have ended; one of these asks
    itself in vain, and learns only what Slurm does with the job meanwhile."""
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
    """Of a job that Slurm ends: as which it will be listed, as far as its fields tell. Empty: it goes on, or was
    cancelled."""
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
    """`*` after the state: it does not respond."""
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
