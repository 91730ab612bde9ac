"""Verify a bundle: its files against MANIFEST, its metrics and ending against those recomputed from the raw files, and
the planned job against what the processes of the run recorded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from flagperf import version
from flagperf.bundle.bundle import (
    broken_files,
    environment_fingerprint,
    file_digests,
    job_fingerprints,
    launched_commands,
    planned_fields,
    read_bundle,
    read_record,
    read_redaction,
    unreadable_files,
    witness_problems,
)
from flagperf.bundle.operator_file import decode_operators, summary
from flagperf.bundle.paths import (
    MANIFEST_FILE,
    OPERATORS_FILE,
    PARENT_EVENTS,
    REDACTION_FILE,
    RUN_FILE,
    SIGNATURE_FILE,
)
from flagperf.bundle.run_record import Ending, Run, Status, gated
from flagperf.bundle.signature import Signature, check_signature
from flagperf.errors import BadInput, FlagPerfError
from flagperf.event_files import EventFile
from flagperf.event_files import of_type as of
from flagperf.events import RunEnded, RunStarted, WorkerStarted
from flagperf.metrics.entry import Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.spec.job import Job, PlannedNode
from flagperf.text import flagperf_command

TOLERANCE = 1e-12
"""Relative, of derived floats: another C library or Python may round their last bits otherwise."""


class Verification(msgspec.Struct, frozen=True):
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    """What could not be checked, through no fault of the bundle."""
    num_metrics: int
    num_files: int
    signer: str = ""
    """Whose signature was found good. Empty if none was asked for."""
    redacted: bool = False
    """The bundle does not show that its names are real, see docs/passing-on.md."""


def verify_bundle(path: Path, signers: Path | None = None) -> Verification:
    """With `signers`, a file of allowed signers, the bundle has to be signed by one of them."""
    num_files = sum(file.is_file() for file in path.rglob("*"))
    unreadable = unreadable_files(path)
    if unreadable:
        return Verification(tuple(unreadable), (), 0, num_files)
    signature = check_signature(path, signers) if signers is not None else Signature()
    problems, run = _compared(path)
    problems += [signature.problem] if signature.problem else []
    num_metrics = len(run.metrics) if run else 0
    notes = [*(_unchecked_signature(path) if signers is None else []), *_redaction_notes(path)]
    return Verification(
        tuple(dict.fromkeys(problems)),
        tuple(notes),
        num_metrics,
        num_files,
        signature.signer,
        redacted=run is not None and run.redacted,
    )


def trouble_of(path: Path) -> str:
    """What is wrong with a bundle, in one sentence. Empty if it is verified."""
    problems = verify_bundle(path).problems
    if not problems:
        return ""
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    command = flagperf_command("runs", "verify", path)
    return f"{path.name} is not verified: {problems[0]}{more}; see `{command}`"


@contextlib.contextmanager
def damage_explains(paths: Sequence[Path]) -> Iterator[None]:
    """An error nobody foresaw is the bundle's fault if the bundle is not verified, else a bug in flagperf."""
    try:
        yield
    except (FlagPerfError, MemoryError):
        raise
    except Exception as error:
        trouble = next(filter(None, map(trouble_of, paths)), "")
        if not trouble:
            raise
        raise BadInput(f"cannot show what is damaged: {trouble}") from error


def _compared(path: Path) -> tuple[list[str], Run | None]:
    """The problems as far as the files can be read, and the run where it can."""
    problems: list[str] = []
    run = None
    try:
        digests = file_digests(path)
        problems = broken_files(path, digests)
        if not (path / RUN_FILE).exists():
            return [f"{RUN_FILE} is missing", *problems], None
        run = read_bundle(path).run
        problems.extend(_problems(path, run, digests))  # keeps those before an error
    except BadInput as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"cannot read {error.filename}: {error.strerror}")
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the files are anybody's: no value in them may end the verification
        problems.append(f"the metrics cannot be recomputed from the raw files: {type(error).__name__}: {error}")
    return problems, run


def _problems(path: Path, run: Run, digests: Mapping[str, str]) -> Iterator[str]:
    if (read_redaction(path) is not None) != run.redacted:
        yield f"{REDACTION_FILE} and {RUN_FILE} do not say the same of what was redacted"
    observed = Observed(run.job, run.manifest, read_record(path))
    observed.read_files()
    parent = observed.record.parent
    if run.ending is None:
        if (path / MANIFEST_FILE).exists():
            yield f"{RUN_FILE} has no ending: the run was never finished"
        return
    yield from witness_problems(path, parent, digests)
    yield from _metric_problems(run, observed)
    yield from _row_problems(run, observed)
    yield from _ending_problems(run, observed)
    yield from _plan_problems(path, parent)
    yield from _command_problems(run, parent)
    yield from _worker_problems(job_fingerprints(path), observed)
    yield from _probe_problems(observed)
    yield from _recording_problems(path, run)


def _unchecked_signature(path: Path) -> list[str]:
    return [f"{SIGNATURE_FILE} was not checked; --signers FILE does"] if (path / SIGNATURE_FILE).exists() else []


# --- metrics and ending ---------------------------------------------------------------------------------------------


def _metric_problems(run: Run, observed: Observed) -> Iterator[str]:
    """Recompute each stored metric. A run does not need metrics that a later flagperf added."""
    stored = {metric.name: metric for metric in run.metrics}
    if len(stored) != len(run.metrics):
        yield f"run.json: {len(run.metrics) - len(stored)} metrics are duplicates"
    yield from _version_problems(run.metric_versions, stored)
    again = {metric.name: metric for metric in compute_metrics(observed)}
    for name, metric in stored.items():
        if name in again and again[name].version == metric.version:
            yield from _field_problems(metric, again[name], _compared_fields(run))
        else:
            yield f"{name}: this flagperf has no version {metric.version} of its formula; install the latest flagperf"


def _version_problems(expected: Mapping[str, int], stored: Mapping[str, Metric]) -> Iterator[str]:
    """A run has exactly the metrics and versions that were recorded when it began."""
    for name in sorted(set(expected) | set(stored)):
        before, now = expected.get(name), stored[name].version if name in stored else None
        if before != now:
            yield f"{name}: run.json has {_version(now)}, but the run began with {_version(before)}"


def _version(version: int | None) -> str:
    return "no such metric" if version is None else f"version {version} of it"


def _compared_fields(run: Run) -> list[str]:
    """Another flagperf version may explain a missing value differently, so `message` is compared only for runs of this
    version. `detail` is its English wording, which reports make from the message again. Values, reasons, marks and
    inputs are always compared."""
    ignored = ("detail",) if run.flagperf_version == version() else ("detail", "message")
    return [field for field in Metric.__struct_fields__ if field not in ignored]


def _field_problems(stored: Metric, recomputed: Metric, fields: Sequence[str]) -> Iterator[str]:
    if not (_is_same(stored.value, recomputed.value) and stored.reason == recomputed.reason):
        yield f"{stored.name}: stored {_value(stored)}, recomputed {_value(recomputed)}"
    for field in fields:
        before, again = (msgspec.to_builtins(getattr(metric, field)) for metric in (stored, recomputed))
        if field not in ("value", "reason") and not _is_same(before, again):
            yield f"{stored.name}: stored {field} {_text(before)}, recomputed {_text(again)}"


def _row_problems(run: Run, observed: Observed) -> Iterator[str]:
    again = observed.rows
    if len(run.rows) != len(again):
        yield f"run.json has {len(run.rows)} measured rows, the raw files have {len(again)}"
    for row, recomputed_row in zip(run.rows, again, strict=False):
        stored, recomputed = msgspec.to_builtins(row), msgspec.to_builtins(recomputed_row)
        if run.flagperf_version != version():  # a later version has more fields of a row
            recomputed = {name: value for name, value in recomputed.items() if name in stored}
        names = [name for name in {**stored, **recomputed} if not _is_same(stored.get(name), recomputed.get(name))]
        if names:
            before, now = ({name: each.get(name) for name in names} for each in (stored, recomputed))
            yield f"row {row.name} {_text(row.labels)}: stored {_text(before)}, recomputed {_text(now)}"


def _is_same(stored: Any, recomputed: Any) -> bool:
    """Compare floats to TOLERANCE, and all else, also counts, bytes and nanoseconds, exactly."""
    if isinstance(stored, dict) and isinstance(recomputed, dict):
        return stored.keys() == recomputed.keys() and all(_is_same(stored[name], recomputed[name]) for name in stored)
    if isinstance(stored, list | tuple) and isinstance(recomputed, list | tuple):
        return len(stored) == len(recomputed) and all(map(_is_same, stored, recomputed))
    if isinstance(stored, float) and isinstance(recomputed, float):
        return math.isclose(stored, recomputed, rel_tol=TOLERANCE)
    return bool(stored == recomputed)


def _value(metric: Metric | None) -> str:
    if metric is None:
        return "nothing"
    return f"n/a ({metric.reason})" if metric.value is None else str(metric.value)


def _text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _ending_problems(run: Run, observed: Observed) -> Iterator[str]:
    assert run.ending is not None
    raw = of(observed.record.parent.events, RunEnded)
    if len(raw) != 1:
        yield f"ending: {PARENT_EVENTS} has {len(raw)} endings, a finished run has one"
        return
    ending = gated(Ending(cast("Status", raw[0].status), raw[0].reason, raw[0].message), run)
    if not _is_same_ending(run, ending):
        yield f"ending: stored {_ending(run.ending)}, recomputed {_ending(ending)}"
    unhappy = observed.failure
    if unhappy is not None and run.ending.status in ("succeeded", "target_missed"):
        yield f"ending: stored {run.ending.status}, but {unhappy.detail}"


def _is_same_ending(run: Run, raw: Ending) -> bool:
    """An ending derived from metrics (a missed target) may be explained differently by another flagperf version."""
    stored = run.ending
    assert stored is not None
    if stored.status != raw.status:
        return False
    if raw.status == "target_missed":
        is_of_another_version = run.flagperf_version != version()
        messages = (msgspec.to_builtins(each.message) for each in (stored, raw))
        return is_of_another_version or _is_same(*messages)
    return (stored.reason, stored.message) == (raw.reason, raw.message)


def _ending(ending: Ending) -> str:
    return f"{ending.status} ({ending.reason})" if ending.reason else ending.status


# --- what was run ---------------------------------------------------------------------------------------------------


def _plan_problems(path: Path, parent: EventFile) -> Iterator[str]:
    started = of(parent.events, RunStarted)
    if not started or not started[0].planned:
        yield f"{PARENT_EVENTS} does not record what was planned"
        return
    before = started[0].planned
    now = planned_fields(path)
    for name in sorted(set(before) | set(now)):
        if before.get(name) != now.get(name):
            yield f"run.json: {name} has changed since the run began"
    if started[0].environment != environment_fingerprint(path):
        yield "environment.json has changed since the run began"


def _command_problems(run: Run, parent: EventFile) -> Iterator[str]:
    if run.commands != launched_commands(parent):
        yield f"run.json: commands differ from the commands that the agents ran ({PARENT_EVENTS})"


def _worker_problems(fingerprints: Mapping[int, str], observed: Observed) -> Iterator[str]:
    job, nodes = observed.job, _planned_nodes(observed.job)
    planned = {"precision": job.precision.name, "batch size": job.batch_size, "world size": job.world_size}
    for rank in observed.ranks:
        started = rank.started
        named = list(_named_differences(planned, nodes.get(started.node_index), started))
        yield from (f"rank {started.rank}: {difference}" for difference in named)
        if started.job != fingerprints.get(started.node_index) and not named:
            yield f"rank {started.rank}: the job that it received differs from the one in run.json"


def _named_differences(
    planned: Mapping[str, object], node: PlannedNode | None, started: WorkerStarted
) -> Iterator[str]:
    said = {"precision": started.precision, "batch size": started.batch_size, "world size": started.world_size}
    for name, value in planned.items():
        if said[name] != value:
            yield f"run.json has {name} {value}, but the worker used {said[name]}"
    if node is None or started.local_rank >= len(node.devices):
        yield f"run.json has no device for local rank {started.local_rank} of node {started.node_index}"
        return
    if started.clock.host != node.host:
        yield f"run.json has host {node.host}, but the worker ran on {started.clock.host}"
    devices = [device.id for device in node.devices]
    if started.mapping != "none" and started.device_id not in devices:
        yield f"run.json has devices {', '.join(devices)}, but the worker used {started.device_id}"


def _probe_problems(observed: Observed) -> Iterator[str]:
    job, nodes = observed.job, _planned_nodes(observed.job)
    for record in observed.nodes:
        for started in record.starts:
            node = nodes.get(started.node_index)
            if node is None or started.vendor != job.vendor:
                yield f"node {started.node_index}: its probe read cards of {started.vendor}, not those of this job"
                continue
            known = {device.id for device in node.devices}
            if record.read_ids - known:
                yield f"node {node.index}: run.json has no device {', '.join(sorted(record.read_ids - known))}"


def _recording_problems(path: Path, run: Run) -> Iterator[str]:
    """Its content is witnessed like that of every file. The ranks' own files are gone, so it is not made again."""
    stored, has_file = run.recorded, (path / OPERATORS_FILE).exists()
    if stored is None or not stored.steps:
        if has_file:
            yield f"{OPERATORS_FILE} is there, but run.json says that nothing was recorded"
        return
    if not has_file:
        yield f"{OPERATORS_FILE} is missing"
        return
    recording = decode_operators(path)
    if recording.run_id != run.id:
        yield f"{OPERATORS_FILE} is of run {recording.run_id}"
    if summary(recording, stored.problem) != stored:
        yield f"{OPERATORS_FILE} does not have what run.json says of it"


def _redaction_notes(path: Path) -> list[str]:
    """How far a redacted copy can be verified."""
    try:
        redaction = read_redaction(path)
    except BadInput:
        return []  # it is a problem already
    if redaction is None:
        return []
    replaced = f"pseudonyms for {redaction.summary}"
    return [f"it is redacted ({replaced}): hashes over these were made anew, so they do not witness the run"]


def _planned_nodes(job: Job) -> dict[int, PlannedNode]:
    """By their index. Of several with one index, the first."""
    return {node.index: node for node in reversed(job.nodes)}
