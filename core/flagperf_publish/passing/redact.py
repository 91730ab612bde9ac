"""A copy without identities."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from flagperf import version
from flagperf.api import Recording
from flagperf.bundle.bundle import (
    create_bundle,
    environment_fingerprint,
    file_digests,
    job_fingerprints,
    planned_fields,
    read_bundle,
    read_record,
    read_redaction,
    witness_files,
    write_manifest,
    write_run,
)
from flagperf.bundle.operator_file import decode_operators
from flagperf.bundle.paths import (
    EVENTS,
    LABELS_FILE,
    LOGS,
    OPERATORS_FILE,
    PARENT_EVENTS,
    REDACTION_FILE,
    SAMPLES,
    SIGNATURE_FILE,
)
from flagperf.bundle.run_record import REDACTION_SCHEMA, Ending, RecordedRun, Redaction, Run, Status, gated
from flagperf.bundle.verify import verify_bundle
from flagperf.errors import BadInput, BundleFailed
from flagperf.event_files import EventFile, EventWriter, of_type, read_events
from flagperf.events import AnyEvent, BundleSealed, RunEnded, RunStarted, WorkerStarted
from flagperf.files import cannot_write, making_folder, write_atomically
from flagperf.metrics.entry import Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf_publish.passing.identities import Findings, Pseudonyms, Replaced, pseudonyms_in
from flagperf_publish.passing.text_fields import FIELDS, PLAIN_PROPERTIES, Use

# Structs with their texts visited by what they are, as FIELDS says.


S = TypeVar("S")

_TEXTS = ("text", "texts_by_text")

Visit = Callable[[Use, str], str]
"""Takes what a text is, and the text; gives what stands in its place."""


def visited(value: S, visit: Visit) -> S:
    """The same struct, or list of structs, with every text visited. What has none is given back as it is."""
    return _visited(value, visit)  # type: ignore[no-any-return]


def gather(findings: Findings) -> Visit:
    """A visit that changes nothing."""

    def visit(use: Use, text: str) -> str:
        if use in _TEXTS:
            findings.search(text)
        elif use == "setting":
            findings.add(use, text.partition("=")[2])
        elif use != "path" or text.startswith("/"):
            findings.add(use, text)
        return text

    return visit


def replace(names: Pseudonyms) -> Visit:
    def visit(use: Use, text: str) -> str:
        if use == "setting":
            name, equals, value = text.partition("=")
            return f"{name}{equals}{names.value(value)}"
        found = text if use in _TEXTS else names.value(text)
        return names.text(text) if found == text else found

    return visit


def _visited(value: Any, visit: Visit) -> Any:
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name, use in _fields_of(type(value)):
            before = getattr(value, name)
            after = _visited(before, visit) if use is None else _used(use, before, visit)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, tuple | list):
        found = [_visited(each, visit) for each in value]
        return _same_or(value, type(value)(found))
    if isinstance(value, dict):
        return _same_or(value, {key: _visited(each, visit) for key, each in value.items()})
    return value


def _used(use: Use, value: Any, visit: Visit) -> Any:
    """All texts in a value that is of one use. Keys are names of ours or of the case, unless they are texts as well."""
    if isinstance(value, str):
        return visit(use, value) if value and use != "harmless" else value
    if isinstance(value, msgspec.Struct):
        return _visited(value, visit)
    if isinstance(value, tuple | list):
        return _same_or(value, type(value)([_used(use, each, visit) for each in value]))
    if isinstance(value, dict) and use == "properties":
        found = {name: _used(_property(name, str(each)), each, visit) for name, each in value.items()}
        return _same_or(value, found)
    if isinstance(value, dict):
        left = ("code",) if set(value) == _MESSAGE else ()  # a message inside a message
        keys = {key: visit(use, key) if use == "texts_by_text" else key for key in value}
        items = {keys[key]: each if key in left else _used(use, each, visit) for key, each in value.items()}
        return _same_or(value, items)
    return value


_MESSAGE = {"code", "params"}


def _property(name: str, value: str) -> Use:
    """Of no use: a number or a version, unless its name says that it is an address."""
    if _VERSION.fullmatch(value) and not _ADDRESS.search(name):
        return "harmless"
    return "text" if name in PLAIN_PROPERTIES else "serial"


_VERSION = re.compile(r"v?[0-9]{1,4}(?:\.[0-9]{1,6}){1,3}(?:[-+_][A-Za-z0-9]{1,8})?")

_ADDRESS = re.compile(r"addr|host|(?:^|_)ip", re.IGNORECASE)


def _same_or(before: Any, after: Any) -> Any:
    """`before` itself if nothing changed, so that most events need no copy."""
    return before if before == after else after


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, Use | None], ...]:
    """Fields to look into, with their use; None for structs inside. Harmless ones and witnesses are left out. A struct
    that is not in the table raises KeyError: nothing of it would be looked at."""
    uses = FIELDS[kind.__name__]
    inside = [field.name for field in msgspec.structs.fields(kind) if _has_structs(field.type)]
    looked_at: list[tuple[str, Use | None]] = [
        (name, use) for name, use in uses.items() if use not in ("harmless", "witness")
    ]
    return (*looked_at, *((name, None) for name in inside if uses.get(name) in (None, "harmless")))


def _has_structs(kind: Any) -> bool:
    arguments = getattr(kind, "__args__", ())
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return is_struct or any(map(_has_structs, arguments))


# The redacted copy of a run: the same files with the same figures, under pseudonyms.
#
# Hashes that the processes of the run wrote over its values (the plan, the environment, the job of each worker, all
# files) would let anybody check a guess of what was replaced, so they are made anew over the redacted values. The
# copy is then as consistent as the original was, which has to verify before it is copied; what it no longer shows is
# that nobody made it up.


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
    ends = of_type(observed.record.parent.events, RunEnded)
    return gated(Ending(cast("Status", ends[0].status), ends[0].reason, ends[0].message), run) if ends else run.ending


def _figures(metric: Metric) -> tuple[object, ...]:
    return metric.value, metric.reason, metric.marks, metric.interval


# Making a redacted copy: find what identifies, write the copy beside its place, verify it, put it there.


class Wishes(msgspec.Struct, frozen=True):
    """How to redact."""

    with_logs: bool = True
    words: tuple[str, ...] = ()
    """Texts to replace besides."""
    users: tuple[str, ...] = ()
    """User names that are known."""


class Redacted(msgspec.Struct, frozen=True):
    path: str
    redaction: Redaction


def redact(original: Path, out: Path, wishes: Wishes) -> Redacted:
    """Put a copy into the folder `out`, under an id of its own. Raise BadInput unless the original verifies."""
    recorded = _verified(original)
    run_id = f"{recorded.run.id}-redacted"
    target = out / run_id
    if os.path.lexists(target):
        raise BadInput(f"{target} exists; remove it, or choose another folder with --out")
    replaced = found_in(original, recorded, wishes)
    try:
        with making_folder(out), tempfile.TemporaryDirectory(dir=out, prefix=".redact-") as folder:
            copy = build(original, Path(folder), run_id, replaced, with_logs=wishes.with_logs)
            _check(copy, wishes)
            copy.rename(target)
    except OSError as error:
        raise cannot_write(f"cannot write {target}: {error.strerror} ({error.filename}); see --out", error) from None
    redaction = read_redaction(target)
    assert redaction is not None
    return Redacted(str(target), redaction)


def _verified(original: Path) -> RecordedRun:
    problems = verify_bundle(original).problems
    if problems:
        raise BadInput(f"{original.name} is not verified, so it is not redacted: {problems[0]}")
    redaction = read_redaction(original)
    if redaction is not None:
        raise BadInput(f"{original.name} is redacted already; redact the original, {redaction.original_run}")
    return read_bundle(original)


def found_in(original: Path, recorded: RecordedRun, wishes: Wishes) -> tuple[Replaced, ...]:
    """All that identifies, from fields first: texts are searched for the domains of the machines too."""
    findings = Findings()
    visit = gather(findings)
    for user in wishes.users:
        findings.add("user", user)
    for word in wishes.words:
        findings.add("word", word)
    for _ in range(2):
        visited(recorded.run, visit)
        visited(recorded.nodes, visit)
    _search_raw_files(original, findings, wishes)
    return findings.replacements()


def _search_raw_files(original: Path, findings: Findings, wishes: Wishes) -> None:
    visit = gather(findings)
    for folder in (EVENTS, SAMPLES):
        for path in sorted((original / folder).glob("*.jsonl")):
            visited(read_events(path).events, visit)
    if (original / OPERATORS_FILE).exists():
        visited(decode_operators(original), visit)
    for path in sorted((original / LOGS).glob("*")) if wishes.with_logs else ():
        for line in log_lines(path):
            findings.search(line)


def _check(copy: Path, wishes: Wishes) -> None:
    """The copy is a bundle as good as the original, and has none of the words that were named."""
    problems = verify_bundle(copy).problems
    if problems:
        raise BundleFailed(f"the redacted copy would not verify: {problems[0]}; please report this")
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        found = _first_of(wishes.words, path)
        if found:
            why = "it is part of a name that redaction leaves alone, such as that of a case, a vendor or a package"
            raise BadInput(f"{found!r} would still be in {path.relative_to(copy)}: {why}")


def _first_of(words: Sequence[str], path: Path) -> str:
    wanted = [word.lower() for word in words]
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file if wanted else ():
            text = line.lower()
            for word in wanted:
                if word in text:
                    return word
    return ""
