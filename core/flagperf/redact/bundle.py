"""The redacted copy of a run: the same files with the same figures, under pseudonyms.

Hashes that the processes of the run wrote over its values (the plan, the environment, the job of each worker, all
files) would let anybody check a guess of what was replaced, so they are made anew over the redacted values. The copy is
then as consistent as the original was, which has to verify before it is copied; what it no longer shows is that nobody
made it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from flagperf import version
from flagperf.api import Recording
from flagperf.errors import BadInput, BundleFailed
from flagperf.events import (
    AnyEvent,
    BundleSealed,
    EventFile,
    EventWriter,
    RunEnded,
    RunStarted,
    WorkerStarted,
    read_events,
)
from flagperf.files import write_atomically
from flagperf.metrics import Metric, Observed, compute_metrics
from flagperf.metrics.by_type import of
from flagperf.redact.pseudonyms import Pseudonyms, Replaced, pseudonyms_in
from flagperf.redact.values import Visit, replace, visited
from flagperf.store.bundle import (
    create_bundle,
    environment_fingerprint,
    job_fingerprints,
    planned_fields,
    read_bundle,
    read_record,
    write_manifest,
    write_run,
)
from flagperf.store.paths import (
    EVENTS,
    LABELS_FILE,
    LOGS,
    OPERATORS_FILE,
    PARENT_EVENTS,
    REDACTION_FILE,
    SAMPLES,
    SIGNATURE_FILE,
)
from flagperf.store.recording import decode_operators
from flagperf.store.redaction import REDACTION_SCHEMA, Redaction
from flagperf.store.run import Ending, Run, Status, gated
from flagperf.store.witness import file_digests, witness_files

MAX_LINE_BYTES = 64 << 20
"""Of a log. A longer line has no place to be searched at."""


def build(original: Path, folder: Path, run_id: str, replaced: Sequence[Replaced], *, with_logs: bool) -> Path:
    """Write the copy into `folder` and return its path. Requires that the original verifies."""
    recorded = read_bundle(original)
    visit = replace(Pseudonyms(replaced))
    found, nodes = visited(recorded.run, visit), visited(recorded.nodes, visit)
    job = msgspec.structs.replace(found.job, run_id=run_id)
    run = msgspec.structs.replace(found, id=run_id, job=job, redacted=True)
    path = create_bundle(folder, msgspec.structs.replace(run, metrics=(), rows=()), nodes)
    parent = _write_events(original, path, visit)
    if with_logs:
        _write_logs(original, path, visit)
    _write_operators(original, path, run_id, visit)
    _write_metrics(path, run, recorded.run)
    used = pseudonyms_in(path)
    redaction = Redaction(
        schema=REDACTION_SCHEMA,
        flagperf_version=version(),
        original_run=recorded.run.id,
        replaced=Counter(each.kind for each in replaced if each.pseudonym in used),
        left_out=tuple(_left_out(original, with_logs)),
    )
    write_atomically(path / REDACTION_FILE, msgspec.json.format(msgspec.json.encode(redaction), indent=1) + b"\n")
    digests = file_digests(path)
    write_manifest(path, digests if parent is None else witness_files(path, digests, parent.t_ns))
    return path


def _left_out(original: Path, with_logs: bool) -> Iterator[str]:
    yield from (str(name) for name in (LABELS_FILE, SIGNATURE_FILE) if (original / name).exists())
    if not with_logs:
        yield str(LOGS)


# --- events and samples ---------------------------------------------------------------------------------------------


def _write_events(original: Path, path: Path, visit: Visit) -> BundleSealed | None:
    """The last event of the parent is not written yet; it is given back."""
    before, now = job_fingerprints(original), job_fingerprints(path)
    for source in sorted([*(original / EVENTS).glob("rank-*.jsonl"), *(original / SAMPLES).glob("node-*.jsonl")]):
        _write_file(path / source.relative_to(original), read_events(source), visit, before, now)
    if not (original / PARENT_EVENTS).exists():
        return None
    parent = read_events(original / PARENT_EVENTS)
    sealed = [event for event in parent.events if isinstance(event, BundleSealed)]
    others = tuple(_planned(event, path) for event in parent.events if not isinstance(event, BundleSealed))
    _write_file(path / PARENT_EVENTS, EventFile(others, parent.torn), visit, before, now)
    return sealed[0] if sealed else None


Jobs = Mapping[int, str]
"""Node -> fingerprint of the job that its workers received."""


def _write_file(path: Path, file: EventFile, visit: Visit, before: Jobs, now: Jobs) -> None:
    with EventWriter(path) as writer:
        for start in range(0, len(file.events), 1000):
            batch = file.events[start : start + 1000]
            writer.write(*(_with_job(visited(event, visit), before, now) for event in batch))
    if file.torn:
        with path.open("ab") as torn:
            torn.write(b"{")  # in place of the torn line, so that the figures keep their mark


def _planned(event: AnyEvent, path: Path) -> AnyEvent:
    """What the run began with, by the redacted files."""
    if not isinstance(event, RunStarted):
        return event
    environment = environment_fingerprint(path) if event.environment else ""
    planned = planned_fields(path) if event.planned else {}
    return msgspec.structs.replace(event, planned=planned, environment=environment)


def _with_job(event: AnyEvent, before: Jobs, now: Jobs) -> AnyEvent:
    """With the fingerprint of the redacted job."""
    if not isinstance(event, WorkerStarted):
        return event
    job = now[event.node_index] if event.job == before.get(event.node_index) else ""
    return msgspec.structs.replace(event, job=job)


# --- logs and operators ---------------------------------------------------------------------------------------------


def _write_logs(original: Path, path: Path, visit: Visit) -> None:
    for source in sorted((original / LOGS).iterdir()) if (original / LOGS).is_dir() else ():
        with (path / LOGS / source.name).open("w", encoding="utf-8", errors="surrogateescape", newline="") as log:
            log.writelines(visit("text", line) for line in log_lines(source))


def _write_operators(original: Path, path: Path, run_id: str, visit: Visit) -> None:
    if (original / OPERATORS_FILE).exists():
        recording: Recording = visited(decode_operators(original), visit)
        own = msgspec.structs.replace(recording, run_id=run_id)
        write_atomically(path / OPERATORS_FILE, msgspec.json.encode(own) + b"\n")


def log_lines(path: Path) -> Iterator[str]:
    """What is not UTF-8 comes out as it went in."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                advice = "leave out the logs with --no-logs"
                raise BadInput(f"{path} has a line of more than {MAX_LINE_BYTES >> 20} MiB; {advice}")
            yield line.decode(errors="surrogateescape")


# --- figures -------------------------------------------------------------------------------------------


def _write_metrics(path: Path, run: Run, original: Run) -> None:
    """Computed from the redacted files."""
    observed = Observed(run.job, run.manifest, read_record(path))
    again = {metric.name: metric for metric in compute_metrics(observed)}
    metrics = tuple(again.get(metric.name, metric) for metric in run.metrics)
    for before, now in zip(original.metrics, metrics, strict=True):
        if _figures(before) != _figures(now):
            raise BundleFailed(f"cannot redact {original.id}: {before.name} would change; please report this")
    measured = msgspec.structs.replace(run, metrics=metrics, rows=observed.rows)
    write_run(path, msgspec.structs.replace(measured, ending=_ending(measured, observed)))


def _ending(run: Run, observed: Observed) -> Ending | None:
    """As the parent recorded it, and by the figures: an older version may have worded a missed target otherwise."""
    ends = of(observed.record.parent.events, RunEnded)
    return gated(Ending(cast("Status", ends[0].status), ends[0].reason, ends[0].message), run) if ends else run.ending


def _figures(metric: Metric) -> tuple[object, ...]:
    return metric.value, metric.reason, metric.marks, metric.interval
