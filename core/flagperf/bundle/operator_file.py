"""The recorded operators of a run: one file in its bundle, made at its end of what the ranks wrote, and read again by a
run that replays them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import RecordedRanks, Recording, TensorArgument
from flagperf.api.operator_calls import RECORDING_SCHEMA, RankOperators
from flagperf.bundle.bundle import MAX_JSON_BYTES, broken_files, writing
from flagperf.bundle.paths import OPERATORS_FILE, rank_operators
from flagperf.bundle.run_record import RecordedOperators, Run
from flagperf.errors import BadInput
from flagperf.files import read_regular, sha256_of, write_atomically
from flagperf.messages import Message, message
from flagperf.text import flagperf_command

MAX_PARTS = 64
"""Ranks of pipeline and tensor parallel differ in this many ways or fewer. Ranks of data parallel do the same, except
where every rank pads its batches to another length."""


# --- at the end of a run --------------------------------------------------------------------------------------------


def collect_operators(bundle: Path, run: Run) -> RecordedOperators | None:
    """Write OPERATORS_FILE and remove the files of the ranks. `run` has its metrics already. Return None if nothing was
    to be recorded."""
    if not run.job.record_steps:
        return None
    gathered = _Gathered()
    for rank in range(run.job.world_size):
        gathered.add(rank, bundle / rank_operators(rank))
    found = gathered.recording(run)
    with writing(bundle):
        if found is not None:
            write_atomically(bundle / OPERATORS_FILE, msgspec.json.encode(found) + b"\n")
        for rank in range(run.job.world_size):
            (bundle / rank_operators(rank)).unlink(missing_ok=True)
    return summary(found, gathered.problem)


def summary(recording: Recording | None, problem: Message | None) -> RecordedOperators:
    if recording is None:
        return RecordedOperators(problem=problem)
    first = recording.parts[0]
    calls = sum(call.count for call in first.calls)
    return RecordedOperators(first.steps, len(first.calls), calls, len(recording.parts), problem)


class _Gathered:
    """Reads what the ranks recorded, one after the other. Only what differs is kept."""

    def __init__(self) -> None:
        self.problem: Message | None = None
        """The first."""
        self._parts: dict[bytes, RecordedRanks] = {}
        self._torch = ""
        self._left_out = 0

    def add(self, rank: int, path: Path) -> None:
        try:
            found = msgspec.json.decode(read_regular(path, MAX_JSON_BYTES), type=RankOperators)
        except FileNotFoundError:
            self._note(message("recording.missing", rank=rank))
            return
        except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._note(message("recording.unreadable", rank=rank, why=str(error)))
            return
        if found.problem is not None:
            self._note(found.problem)
        if not found.steps:
            return
        self._torch = self._torch or found.torch
        key = _what_it_did(found)
        known = self._parts.get(key)
        if known is not None:
            calls = []
            for call, other in zip(known.calls, found.calls, strict=True):
                both = {place: each.union(other.ranges.get(place)) for place, each in call.ranges.items()}
                calls.append(msgspec.structs.replace(call, ranges={**other.ranges, **both}))
            self._parts[key] = msgspec.structs.replace(known, ranks=[*known.ranks, rank], calls=calls)
        elif len(self._parts) < MAX_PARTS:
            self._parts[key] = RecordedRanks([rank], found.steps, found.tensors, found.calls)
        else:
            self._left_out += 1

    def recording(self, run: Run) -> Recording | None:
        if not self._parts:
            return None
        step, job = run.metric("step_time_p50"), run.job
        return Recording(
            schema=RECORDING_SCHEMA,
            run_id=run.id,
            case=job.case,
            case_version=job.case_version,
            profile=job.profile,
            precision=job.precision.name,
            vendor=job.vendor,
            device=job.device_model.model,
            torch=self._torch,
            parts=list(self._parts.values()),
            step_seconds=step.value if step else None,
            num_ranks=job.world_size,
            ranks_left_out=self._left_out,
        )

    def _note(self, problem: Message) -> None:
        self.problem = self.problem or problem


def _what_it_did(found: RankOperators) -> bytes:
    """Return a hash that is the same for ranks that differ in the values of their data, and in numbers among the
    arguments: in tensor parallel, each has the numbers where its part of a vocabulary begins and ends."""
    calls = [
        (call.operator, call.count, call.obstacle, _without_numbers(call.args), _without_numbers(call.kwargs))
        for call in found.calls
    ]
    return hashlib.sha256(msgspec.json.encode((found.steps, found.tensors, calls))).digest()


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_numbers(each) for each in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else value


# --- read again -----------------------------------------------------------------------------------------------------


def read_operators(bundle: Path, rank: int) -> Recording:
    """Return what a rank of that run recorded. Raise BadInput if there is nothing, or it cannot be used."""
    recording = decode_operators(bundle)
    path = bundle / OPERATORS_FILE
    changed = f"{OPERATORS_FILE} has changed since the run"
    if changed in broken_files(bundle, {str(OPERATORS_FILE): sha256_of(path)}):
        raise BadInput(f"{bundle}: {changed}; record again with `{_advice(recording.case)}`")
    for part in recording.parts:
        if rank in part.ranks:
            return msgspec.structs.replace(recording, parts=[part])
    known = ", ".join(str(part.ranks[0]) for part in recording.parts)
    raise BadInput(
        f"{path} has no rank {rank}: that run had {recording.num_ranks} ranks, and ranks {known} stand for all that "
        "are recorded; choose one with --from-rank"
    )


def decode_operators(bundle: Path) -> Recording:
    path = bundle / OPERATORS_FILE
    try:
        content = read_regular(path, MAX_JSON_BYTES)
    except FileNotFoundError:
        advice = _advice("CASE")
        raise BadInput(
            f"{bundle} has no recorded operators ({OPERATORS_FILE}); `{advice}` makes a run with them"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    try:
        schema = msgspec.json.decode(content, type=_OfAnySchema).schema
        if schema != RECORDING_SCHEMA:
            raise BadInput(
                f"{path} has recording schema {schema}, this flagperf reads {RECORDING_SCHEMA}; "
                "install the flagperf that recorded it, or record again with this one"
            )
        recording = msgspec.json.decode(content, type=Recording)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is damaged: {error}; copy the bundle again, or record again") from None
    problem = next(_contradictions(recording), None)
    if problem:
        raise BadInput(f"{path} is damaged: {problem}; copy the bundle again, or record again")
    return recording


class _OfAnySchema(msgspec.Struct, frozen=True):
    schema: int


def _advice(case: str) -> str:
    return flagperf_command("run", case, "--record-operators")


def _contradictions(recording: Recording) -> Iterator[str]:
    """Yield what is wrong although the types fit."""
    if not recording.parts:
        yield "it has no calls"
    for part in recording.parts:
        if not part.ranks or part.steps < 1:
            yield "calls of no rank or no step"
        for tensor in part.tensors:
            if len(tensor.shape) != len(tensor.stride) or min((*tensor.shape, *tensor.stride), default=0) < 0:
                yield f"a tensor is {tensor}"
        for call in part.calls:
            values = (each if isinstance(each, list) else [each] for each in (*call.args, *call.kwargs.values()))
            indices = [each.index for value in values for each in value if isinstance(each, TensorArgument)]
            if call.count < 1 or any(not 0 <= index < len(part.tensors) for index in indices):
                yield f"a call of {call.operator} has no tensor {max(indices, default=0)}, or a count of {call.count}"
