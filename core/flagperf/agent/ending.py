"""Why a node's workers ended otherwise than well: the rank to blame, and its own words."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Launcher
from flagperf.events import WorkerEnded, read_events
from flagperf.spec import Failure, Job, NodePart


def failure_of(
    job: Job, node: NodePart, directory: Path, launcher: Launcher, returncode: int, log: Path
) -> Failure | None:
    """None where all went well. A rank that died without a word is the cause even if others complain about it."""
    first = sum(len(other.devices) for other in job.nodes[: node.index])
    ends = {rank: _end(directory, rank) for rank in range(first, first + len(node.devices))}
    unfinished = [rank for rank, end in ends.items() if end is None or end.status != "succeeded"]
    if returncode == 0 and not unfinished:
        return None
    blamed = launcher.explain_failure(log.read_text(errors="replace"))
    if blamed is not None and ends.get(blamed.rank) is None:
        return Failure(
            "failed", f"rank {blamed.rank}: {blamed.description}; see logs/rank-{blamed.rank:05d}.log", died=True
        )
    failed = [(end.t_ns, rank, end) for rank, end in ends.items() if end is not None and end.status != "succeeded"]
    if failed:
        _, rank, end = min(failed, key=lambda entry: entry[:2])
        return Failure(end.status, f"rank {rank}: {end.reason}; see logs/rank-{rank:05d}.log")
    if returncode == 0:
        rank = unfinished[0]
        return Failure("failed", f"rank {rank} left before its case was done; see logs/rank-{rank:05d}.log", died=True)
    return Failure("failed", f"the launcher ended with {returncode}: {_last_line(log)}; see logs/{log.name}")


def _end(directory: Path, rank: int) -> WorkerEnded | None:
    path = directory / "events" / f"rank-{rank:05d}.jsonl"
    if not path.exists():
        return None
    return next((event for event in read_events(path).events if isinstance(event, WorkerEnded)), None)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
