"""Verify a bundle: compare its files with MANIFEST, its metrics and ending with what is recomputed from the raw files,
and the planned job with what the processes of the run recorded."""

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
    EVENTS,
    MANIFEST_FILE,
    OPERATORS_FILE,
    PARENT_EVENTS,
    REDACTION_FILE,
    RUN_FILE,
    SAMPLES,
    SIGNATURE_FILE,
)
from flagperf.bundle.run_record import Ending, Run, Status, gated
from flagperf.errors import BadInput, FlagPerfError
from flagperf.event_files import EventFile, read_events
from flagperf.event_files import of_type as of
from flagperf.events import RunEnded, RunStarted
from flagperf.metrics.entry import Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.text import flagperf_command

TOLERANCE = 1e-12
"""Relative, for derived floats: another C library or Python may round their last bits otherwise."""


class Verification(msgspec.Struct, frozen=True):
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    """Checks that were not possible, through no fault of the bundle."""
    num_metrics: int
    num_files: int
    signer: str = ""
    """The signer. Empty if no signature was asked for, or it is not good."""
    redacted: bool = False
    """The bundle does not show that its names are real, see docs/passing-on.md."""
    recomputed: bool = True
    """False if only digests were compared."""


def verify_bundle(path: Path, signers: Path | None = None, *, recomputed_bytes: int | None = None) -> Verification:
    """Verify a bundle. With `signers`, a file of allowed signers, it has to be signed by one of them. With more raw
    files than `recomputed_bytes`, only digests are compared."""
    num_files = sum(file.is_file() for file in path.rglob("*"))
    unreadable = unreadable_files(path)
    if unreadable:
        return Verification(tuple(unreadable), (), 0, num_files)
    raw = (file.stat().st_size for folder in (EVENTS, SAMPLES) for file in (path / folder).glob("*.jsonl"))
    recomputes = recomputed_bytes is None or sum(raw) <= recomputed_bytes
    problems, run = _compared(path, recomputes)
    notes, signer = [], ""
    if signers is not None:
        from flagperf.bundle.signature import check_signature

        signature = check_signature(path, signers)
        signer = signature.signer
        problems = [*problems, signature.problem] if signature.problem else problems
    elif (path / SIGNATURE_FILE).exists():
        notes.append(f"{SIGNATURE_FILE} was not checked; --signers FILE does")
    with contextlib.suppress(BadInput):  # it is a problem already
        redaction = read_redaction(path)
        if redaction is not None:
            replaced = f"pseudonyms for {redaction.summary}"
            notes.append(f"it is redacted ({replaced}): its hashes were made over these, and do not witness the run")
    return Verification(
        tuple(dict.fromkeys(problems)),
        tuple(notes),
        len(run.metrics) if run else 0,
        num_files,
        signer,
        redacted=run is not None and run.redacted,
        recomputed=recomputes,
    )


def trouble_of(path: Path, verification: Verification) -> str:
    """Return what is wrong with a bundle, in one sentence. Empty if nothing is."""
    problems = verification.problems
    if not problems:
        return ""
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    command = flagperf_command("runs", "verify", path)
    return f"{path.name} is not verified: {problems[0]}{more}; see `{command}`"


@contextlib.contextmanager
def damage_explains(paths: Sequence[Path]) -> Iterator[None]:
    """Turn an error that nobody foresaw into BadInput if a bundle is not verified. If all are, it is our bug."""
    try:
        yield
    except (FlagPerfError, MemoryError):
        raise
    except Exception as error:
        trouble = next(filter(None, (trouble_of(path, verify_bundle(path)) for path in paths)), "")
        if not trouble:
            raise
        raise BadInput(f"cannot show what is damaged: {trouble}") from error


def _compared(path: Path, recomputes: bool) -> tuple[list[str], Run | None]:
    """Return the problems as far as the files can be read, and the run if it can."""
    problems: list[str] = []
    run = None
    try:
        digests = file_digests(path)
        problems = broken_files(path, digests)
        if not (path / RUN_FILE).exists():
            return [f"{RUN_FILE} is missing", *problems], None
        run = read_bundle(path).run
        problems.extend(_problems(path, run, digests, recomputes))  # keeps those before an error
    except BadInput as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"cannot read {error.filename}: {error.strerror}")
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the files are anybody's: no value in them may end the verification
        problems.append(f"the metrics cannot be recomputed from the raw files: {type(error).__name__}: {error}")
    return problems, run


def _problems(path: Path, run: Run, digests: Mapping[str, str], recomputes: bool) -> Iterator[str]:
    if (read_redaction(path) is not None) != run.redacted:
        yield f"{REDACTION_FILE} and {RUN_FILE} do not say the same of what was redacted"
    if not recomputes:
        if run.ending is not None:
            yield from witness_problems(path, read_events(path / PARENT_EVENTS), digests)
        return
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
    yield from _ending_problems(run, run.ending, observed)
    yield from _plan_problems(path, run, parent)
    yield from _process_problems(job_fingerprints(path), observed)
    yield from _operator_problems(path, run)


# --- metrics, rows and ending ---------------------------------------------------------------------------------------


def _metric_problems(run: Run, observed: Observed) -> Iterator[str]:
    """Recompute each stored metric. A run needs exactly the metrics that were recorded when it began, and none that a
    later flagperf added.

    Another flagperf may explain a missing value differently, so `message` is compared only for runs of this version.
    `detail` is its English wording, which reports make from the message again.
    """
    stored = {metric.name: metric for metric in run.metrics}
    if len(stored) != len(run.metrics):
        yield f"run.json: {len(run.metrics) - len(stored)} metrics are duplicates"
    for name in sorted({*run.metric_versions, *stored}):
        began, now = run.metric_versions.get(name), stored[name].version if name in stored else None
        if began != now:
            said = (f"version {each} of it" if each is not None else "no such metric" for each in (now, began))
            yield "{}: run.json has {}, but the run began with {}".format(name, *said)
    recomputed = {metric.name: metric for metric in compute_metrics(observed)}
    apart = {"value", "reason", "detail"} | (set() if run.flagperf_version == version() else {"message"})
    for name, metric in stored.items():
        again = recomputed.get(name)
        if again is None or again.version != metric.version:
            yield f"{name}: this flagperf has no version {metric.version} of its formula; install the latest flagperf"
            continue
        if not (_is_same(metric.value, again.value) and metric.reason == again.reason):
            yield f"{name}: stored {_value(metric)}, recomputed {_value(again)}"
        for field in Metric.__struct_fields__:
            before, now = (msgspec.to_builtins(getattr(each, field)) for each in (metric, again))
            if field not in apart and not _is_same(before, now):
                yield f"{name}: stored {field} {_text(before)}, recomputed {_text(now)}"


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


def _value(metric: Metric) -> str:
    return f"n/a ({metric.reason})" if metric.value is None else str(metric.value)


def _text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _ending_problems(run: Run, stored: Ending, observed: Observed) -> Iterator[str]:
    """Another flagperf may explain an ending that it derives from metrics (a missed target) differently."""
    events = of(observed.record.parent.events, RunEnded)
    if len(events) != 1:
        yield f"ending: {PARENT_EVENTS} has {len(events)} endings, a finished run has one"
        return
    raw = gated(Ending(cast("Status", events[0].status), events[0].reason, events[0].message), run)
    if raw.status == "target_missed":
        messages = [msgspec.to_builtins(each.message) for each in (stored, raw)]
        is_same = run.flagperf_version != version() or _is_same(*messages)
    else:
        is_same = (stored.reason, stored.message) == (raw.reason, raw.message)
    if stored.status != raw.status or not is_same:
        yield f"ending: stored {_ending(stored)}, recomputed {_ending(raw)}"
    unhappy = observed.failure
    if unhappy is not None and stored.status in ("succeeded", "target_missed"):
        yield f"ending: stored {stored.status}, but {unhappy.detail}"


def _ending(ending: Ending) -> str:
    return f"{ending.status} ({ending.reason})" if ending.reason else ending.status


# --- what was run ---------------------------------------------------------------------------------------------------


def _plan_problems(path: Path, run: Run, parent: EventFile) -> Iterator[str]:
    started = of(parent.events, RunStarted)
    if not started or not started[0].planned:
        yield f"{PARENT_EVENTS} does not record what was planned"
    else:
        before, now = started[0].planned, planned_fields(path)
        changed = (name for name in sorted({*before, *now}) if before.get(name) != now.get(name))
        yield from (f"run.json: {name} has changed since the run began" for name in changed)
        if started[0].environment != environment_fingerprint(path):
            yield "environment.json has changed since the run began"
    if run.commands != launched_commands(parent):
        yield f"run.json: commands differ from the commands that the agents ran ({PARENT_EVENTS})"


def _process_problems(fingerprints: Mapping[int, str], observed: Observed) -> Iterator[str]:
    """Compare the job with what workers and probes recorded."""
    job = observed.job
    nodes = {node.index: node for node in reversed(job.nodes)}  # of several with one index, the first
    for started in (rank.started for rank in observed.ranks):
        seen = [
            ("precision", job.precision.name, started.precision),
            ("batch size", job.batch_size, started.batch_size),
            ("world size", job.world_size, started.world_size),
        ]
        found = [f"run.json has {name} {ours}, but the worker used {its}" for name, ours, its in seen if ours != its]
        node = nodes.get(started.node_index)
        if node is None or started.local_rank >= len(node.devices):
            found.append(f"run.json has no device for local rank {started.local_rank} of node {started.node_index}")
        else:
            if started.clock.host != node.host:
                found.append(f"run.json has host {node.host}, but the worker ran on {started.clock.host}")
            devices = [device.id for device in node.devices]
            if started.mapping != "none" and started.device_id not in devices:
                found.append(f"run.json has devices {', '.join(devices)}, but the worker used {started.device_id}")
        if not found and started.job != fingerprints.get(started.node_index):
            found.append("the job that it received differs from the one in run.json")
        yield from (f"rank {started.rank}: {difference}" for difference in found)
    for record in observed.nodes:
        for probe in record.starts:
            node = nodes.get(probe.node_index)
            if node is None or probe.vendor != job.vendor:
                yield f"node {probe.node_index}: its probe read cards of {probe.vendor}, not those of this job"
                continue
            unknown = record.read_ids - {device.id for device in node.devices}
            if unknown:
                yield f"node {node.index}: run.json has no device {', '.join(sorted(unknown))}"


def _operator_problems(path: Path, run: Run) -> Iterator[str]:
    """Compare operators.json with run.json. It cannot be made again: the ranks' own files are gone."""
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
