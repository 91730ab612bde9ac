"""Operators of real runs: whether they can be recorded or replayed as asked."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Recording
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.spec import Manifest, RunSpec
from flagperf.store.recording import read_operators

RECORDED_STEPS = 3
MAX_RECORDED_STEPS = 1000


def steps_to_record(spec: RunSpec, manifest: Manifest) -> int:
    """0: none."""
    if not spec.record_operators:
        if spec.record_steps is not None:
            raise BadInput("--record-steps says how many steps --record-operators records; give both")
        return 0
    if not KINDS[manifest.kind].has_steps:
        raise BadInput(f"--record-operators: case {manifest.name} is of kind {manifest.kind}, which has no steps")
    steps = RECORDED_STEPS if spec.record_steps is None else spec.record_steps
    if not 1 <= steps <= MAX_RECORDED_STEPS:
        raise BadInput(f"--record-steps must be at least 1 and at most {MAX_RECORDED_STEPS:,}; got {steps}")
    return steps


def recording_to_replay(spec: RunSpec, manifest: Manifest) -> Recording | None:
    if spec.replay is None:
        if spec.replay_rank is not None:
            raise BadInput("--from-rank chooses a rank of the run that --from names; give both")
        return None
    if not KINDS[manifest.kind].replays:
        command = flagperf_command("run", "operators", "--from", Path(spec.replay).name)
        raise BadInput(f"--from: case {manifest.name} of kind {manifest.kind} replays no operators; use `{command}`")
    return read_operators(Path(spec.replay), spec.replay_rank or 0)
