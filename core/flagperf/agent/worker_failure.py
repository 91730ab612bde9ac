"""Why a node's workers failed: the rank that caused it, with the reason that it recorded."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from flagperf.agent.exit_message import exit_message
from flagperf.api import LaunchCommand, Launcher, RankFailure
from flagperf.events import WorkerEnded, read_events
from flagperf.messages import Message, message
from flagperf.spec import WORKER_MODULE, Failure, WorkOrder
from flagperf.store.paths import node_log, rank_events, rank_log
from flagperf.units import exit_status


def find_failure(
    order: WorkOrder, directory: Path, launcher: Launcher, command: LaunchCommand, returncode: int
) -> Failure | None:
    """None where all succeeded. A rank that died without recording a reason is the cause, even where other ranks report
    errors that follow from its death."""
    ends = {rank: _end(directory, rank) for rank in order.ranks}
    if returncode == 0 and all(end is not None and end.status == "succeeded" for end in ends.values()):
        return None
    log = directory / node_log("launcher", order.node_index)
    if returncode and is_worker_itself(command):
        listed = [RankFailure(order.first_rank, exit_status(returncode), exit_code=returncode)]
    else:
        listed = launcher.explain_failures(log.read_text(errors="replace"))
    silent = [rank for rank, end in ends.items() if end is None]
    failure = _died(silent, listed) or _left(silent, listed, returncode) or _reported(ends) or _stopped(silent, listed)
    return failure or Failure("failed", _launcher_failed(returncode, log, str(node_log("launcher", order.node_index))))


def as_out_of_memory(failure: Failure, returncode: int) -> Failure:
    """Where the kernel has killed a process of this control group for lack of memory since the workers started: what
    died without a word died of that."""
    if not failure.died and returncode != -signal.SIGKILL:
        return failure
    return Failure("out_of_memory", message("ending.oom_killed", why=failure.reason), died=failure.died)


def _launcher_failed(returncode: int, log: Path, shown_log: str) -> Message:
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        return message("ending.launcher_silent", code=returncode, log=shown_log)
    return message("ending.launcher_failed", code=returncode, why=lines[-1], log=shown_log)


def is_worker_itself(command: LaunchCommand) -> bool:
    """A single worker may be started without a launcher: its return code is then the rank's."""
    return command.argv[1:] == ("-m", WORKER_MODULE)


def _died(silent: Sequence[int], listed: Sequence[RankFailure]) -> Failure | None:
    """A rank that ended without a record, and not because the launcher stopped it."""
    causes = [failure for failure in listed if failure.rank in silent and not failure.was_stopped]
    return _unrecorded(causes[0].rank, _why(causes[0])) if causes else None


def _left(silent: Sequence[int], listed: Sequence[RankFailure], returncode: int) -> Failure | None:
    """A rank whose process exited with 0 before its case ended. A launcher that lists failures lists all of them."""
    failed = {failure.rank for failure in listed}
    left = [rank for rank in silent if rank not in failed] if listed or returncode == 0 else []
    return _unrecorded(left[0], message("exit.left")) if left else None


def _reported(ends: Mapping[int, WorkerEnded | None]) -> Failure | None:
    """The first rank that recorded why it failed."""
    failed = [(end.t_ns, rank, end) for rank, end in ends.items() if end is not None and end.status != "succeeded"]
    if not failed:
        return None
    _, rank, end = min(failed, key=lambda entry: entry[:2])
    return Failure(end.status, _rank_failed(rank, end.reason))


def _stopped(silent: Sequence[int], listed: Sequence[RankFailure]) -> Failure | None:
    """No other rank is the cause: something outside the run stopped this one."""
    return next((_unrecorded(each.rank, _why(each)) for each in listed if each.rank in silent), None)


def _unrecorded(rank: int, why: Message | str) -> Failure:
    return Failure("failed", _rank_failed(rank, why), died=True)


def _rank_failed(rank: int, why: Message | str) -> Message:
    return message("ending.rank_failed", rank=rank, why=why, log=str(rank_log(rank)))


def _why(failure: RankFailure) -> Message | str:
    return failure.description if failure.exit_code is None else exit_message(failure.exit_code)


def _end(directory: Path, rank: int) -> WorkerEnded | None:
    path = directory / rank_events(rank)
    if not path.exists():
        return None
    return next((event for event in read_events(path).events if isinstance(event, WorkerEnded)), None)
