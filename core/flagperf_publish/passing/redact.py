"""A copy of a run without identities: the same files with the same figures, under pseudonyms.

Hashes that the processes of the run wrote over its values (the plan, the environment, the job of each worker, all
files) would let anybody check a guess of what was replaced, so they are computed again over the redacted values. The
original has to verify before it is copied, and the copy verifies too. What the copy no longer shows is that nobody made
it up.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from flagperf.event_files import EventWriter, of_type, read_events
from flagperf.events import AnyEvent, BundleSealed, RunEnded, RunStarted, WorkerStarted
from flagperf.files import cannot_write, making_folder, write_atomically
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf_publish.passing.identities import Findings, Pseudonyms, Replaced, pseudonyms_in
from flagperf_publish.passing.text_fields import FIELDS, PLAIN_PROPERTIES, Use

S = TypeVar("S")

MAX_LINE_BYTES = 64 << 20
"""Of a log. A longer line has no place to be searched at."""


class Wishes(msgspec.Struct, frozen=True):
    """What the user wants of a redacted copy."""

    with_logs: bool = True
    words: tuple[str, ...] = ()
    """More texts to replace."""
    users: tuple[str, ...] = ()
    """User names that are known."""


class Redacted(msgspec.Struct, frozen=True):
    path: str
    redaction: Redaction


def redact(original: Path, out: Path, wishes: Wishes) -> Redacted:
    """Put a copy into the folder `out`, under an id of its own. Raise BadInput unless the original verifies."""
    problems = verify_bundle(original).problems
    if problems:
        raise BadInput(f"{original.name} is not verified, so it is not redacted: {problems[0]}")
    earlier = read_redaction(original)
    if earlier is not None:
        raise BadInput(f"{original.name} is redacted already; redact the original, {earlier.original_run}")
    recorded = read_bundle(original)
    target = out / f"{recorded.run.id}-redacted"
    if os.path.lexists(target):
        raise BadInput(f"{target} exists; remove it, or choose another folder with --out")
    replaced = found_in(original, recorded, wishes)
    try:
        with making_folder(out), tempfile.TemporaryDirectory(dir=out, prefix=".redact-") as folder:
            copy, redaction = _build(original, recorded, Path(folder), target.name, replaced, wishes)
            _check(copy, wishes)
            copy.rename(target)
    except OSError as error:
        raise cannot_write(f"cannot write {target}: {error.strerror} ({error.filename}); see --out", error) from None
    return Redacted(str(target), redaction)


def found_in(original: Path, recorded: RecordedRun, wishes: Wishes) -> tuple[Replaced, ...]:
    """Return all that identifies. Fields come first: texts are searched for the domains of the machines too."""
    findings = Findings()
    visit = _gather(findings)
    for user in wishes.users:
        findings.add("user", user)
    for word in wishes.words:
        findings.add("word", word)
    for _ in range(2):
        visited(recorded.run, visit)
        visited(recorded.nodes, visit)
    for folder in (EVENTS, SAMPLES):
        for path in sorted((original / folder).glob("*.jsonl")):
            visited(read_events(path).events, visit)
    if (original / OPERATORS_FILE).exists():
        visited(decode_operators(original), visit)
    for path in sorted((original / LOGS).glob("*")) if wishes.with_logs else ():
        for line in log_lines(path):
            findings.search(line)
    return findings.replacements()


def _build(
    original: Path, recorded: RecordedRun, folder: Path, run_id: str, replaced: Sequence[Replaced], wishes: Wishes
) -> tuple[Path, Redaction]:
    """Write the copy into `folder` and return its path with what was replaced."""
    visit = _replace(Pseudonyms(replaced))
    found, nodes = visited(recorded.run, visit), visited(recorded.nodes, visit)
    job = msgspec.structs.replace(found.job, run_id=run_id)
    run = msgspec.structs.replace(found, id=run_id, job=job, redacted=True)
    path = create_bundle(folder, msgspec.structs.replace(run, metrics=(), rows=()), nodes)
    sealed = _write_events(original, path, visit)
    if wishes.with_logs and (original / LOGS).is_dir():
        for source in sorted((original / LOGS).iterdir()):
            with (path / LOGS / source.name).open("w", encoding="utf-8", errors="surrogateescape", newline="") as log:
                log.writelines(visit("text", line) for line in log_lines(source))
    if (original / OPERATORS_FILE).exists():
        recording: Recording = visited(decode_operators(original), visit)
        own = msgspec.structs.replace(recording, run_id=run_id)
        write_atomically(path / OPERATORS_FILE, msgspec.json.encode(own) + b"\n")
    _write_metrics(path, run, recorded.run)
    used = pseudonyms_in(path)
    left_out = [str(name) for name in (LABELS_FILE, SIGNATURE_FILE) if (original / name).exists()]
    redaction = Redaction(
        schema=REDACTION_SCHEMA,
        flagperf_version=version(),
        original_run=recorded.run.id,
        replaced=Counter(each.kind for each in replaced if each.pseudonym in used),
        left_out=(*left_out, *(() if wishes.with_logs else (str(LOGS),))),
    )
    write_atomically(path / REDACTION_FILE, msgspec.json.format(msgspec.json.encode(redaction), indent=1) + b"\n")
    digests = file_digests(path)
    write_manifest(path, digests if sealed is None else witness_files(path, digests, sealed.t_ns))
    return path, redaction


def _write_events(original: Path, path: Path, visit: Visit) -> BundleSealed | None:
    """Write all events but the last of the parent, which is returned: it seals the finished copy."""
    environment, planned = environment_fingerprint(path), planned_fields(path)
    before, now = job_fingerprints(original), job_fingerprints(path)
    sealed = None

    def written(event: AnyEvent) -> AnyEvent:
        """Return the redacted event, with the hashes of the redacted files."""
        event = visited(event, visit)
        if isinstance(event, RunStarted):
            return msgspec.structs.replace(
                event, planned=planned if event.planned else {}, environment=environment if event.environment else ""
            )
        if isinstance(event, WorkerStarted):
            job = now[event.node_index] if event.job == before.get(event.node_index) else ""
            return msgspec.structs.replace(event, job=job)
        return event

    sources = [*(original / EVENTS).glob("rank-*.jsonl"), *(original / SAMPLES).glob("node-*.jsonl")]
    parent = [original / PARENT_EVENTS] if (original / PARENT_EVENTS).exists() else []
    for source in sorted(sources) + parent:
        file = read_events(source)
        target = path / source.relative_to(original)
        with EventWriter(target) as writer:
            for start in range(0, len(file.events), 1000):
                batch = file.events[start : start + 1000]
                sealed = next((event for event in batch if isinstance(event, BundleSealed)), sealed)
                writer.write(*(written(event) for event in batch if not isinstance(event, BundleSealed)))
        if file.torn:
            with target.open("ab") as torn:
                torn.write(b"{")  # in place of the torn line, so that the figures keep their mark
    return sealed


def log_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log. Bytes that are not UTF-8 are escaped, and come out as they went in."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                advice = "leave out the logs with --no-logs"
                raise BadInput(f"{path} has a line of more than {MAX_LINE_BYTES >> 20} MiB; {advice}")
            yield line.decode(errors="surrogateescape")


def _write_metrics(path: Path, run: Run, original: Run) -> None:
    """Compute the metrics from the redacted files. Raise BundleFailed if a figure differs from the original."""
    observed = Observed(run.job, run.manifest, read_record(path))
    again = {metric.name: metric for metric in compute_metrics(observed)}
    metrics = tuple(again.get(metric.name, metric) for metric in run.metrics)
    for before, now in zip(original.metrics, metrics, strict=True):
        if any(getattr(before, name) != getattr(now, name) for name in ("value", "reason", "marks", "interval")):
            raise BundleFailed(f"cannot redact {original.id}: {before.name} would change; please report this")
    measured = msgspec.structs.replace(run, metrics=metrics, rows=observed.rows)
    # the ending by the recorded figures: another version may word a missed target in another way
    ends = of_type(observed.record.parent.events, RunEnded)
    recorded = Ending(cast("Status", ends[0].status), ends[0].reason, ends[0].message) if ends else None
    ending = gated(recorded, measured) if recorded else measured.ending
    write_run(path, msgspec.structs.replace(measured, ending=ending))


def _check(copy: Path, wishes: Wishes) -> None:
    """Check that the copy is a bundle as good as the original, and that it has none of the words that were named."""
    problems = verify_bundle(copy).problems
    if problems:
        raise BundleFailed(f"the redacted copy would not verify: {problems[0]}; please report this")
    wanted = [word.lower() for word in wishes.words]
    for path in sorted(path for path in copy.rglob("*") if path.is_file() and wanted):
        with path.open(encoding="utf-8", errors="replace") as file:
            found = next((word for line in file for word in wanted if word in line.lower()), "")
        if found:
            why = "it is part of a name that redaction leaves alone, such as that of a case, a vendor or a package"
            raise BadInput(f"{found!r} would still be in {path.relative_to(copy)}: {why}")


# --- the texts of structs, visited by what they are (FIELDS) ----------------------------------------------------------

_TEXTS = ("text", "texts_by_text")

Visit = Callable[[Use, str], str]
"""Takes what a text is, and the text; gives what stands in its place."""

_MESSAGE = {"code", "params"}

_VERSION = re.compile(r"v?[0-9]{1,4}(?:\.[0-9]{1,6}){1,3}(?:[-+_][A-Za-z0-9]{1,8})?")

_ADDRESS = re.compile(r"addr|host|(?:^|_)ip", re.IGNORECASE)


def _gather(findings: Findings) -> Visit:
    """Return a visit that changes nothing, and adds what identifies to the findings."""

    def visit(use: Use, text: str) -> str:
        if use in _TEXTS:
            findings.search(text)
        elif use == "setting":
            findings.add(use, text.partition("=")[2])
        elif use != "path" or text.startswith("/"):
            findings.add(use, text)
        return text

    return visit


def _replace(names: Pseudonyms) -> Visit:
    def visit(use: Use, text: str) -> str:
        if use == "setting":
            name, equals, value = text.partition("=")
            return f"{name}{equals}{names.value(value)}"
        found = text if use in _TEXTS else names.value(text)
        return names.text(text) if found == text else found

    return visit


def visited(value: S, visit: Visit) -> S:
    """Return the same struct, or list of structs, with every text visited; `value` itself if nothing changed."""
    return _visited(value, visit)  # type: ignore[no-any-return]


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
        return _same_or(value, type(value)([_visited(each, visit) for each in value]))
    if isinstance(value, dict):
        return _same_or(value, {key: _visited(each, visit) for key, each in value.items()})
    return value


def _used(use: Use, value: Any, visit: Visit) -> Any:
    """Visit all texts in a value of one use. Keys are names of ours or of the case, unless they are texts as well."""
    if isinstance(value, str):
        return visit(use, value) if value and use != "harmless" else value
    if isinstance(value, msgspec.Struct):
        return _visited(value, visit)
    if isinstance(value, tuple | list):
        return _same_or(value, type(value)([_used(use, each, visit) for each in value]))
    if isinstance(value, dict) and use == "properties":
        found = {}
        for name, each in value.items():
            # a number or a version is harmless, unless its name says that it is an address
            is_version = _VERSION.fullmatch(str(each)) and not _ADDRESS.search(name)
            of_name: Use = "harmless" if is_version else "text" if name in PLAIN_PROPERTIES else "serial"
            found[name] = _used(of_name, each, visit)
        return _same_or(value, found)
    if isinstance(value, dict):
        left = ("code",) if set(value) == _MESSAGE else ()  # a message inside a message
        keys = {key: visit(use, key) if use == "texts_by_text" else key for key in value}
        items = {keys[key]: each if key in left else _used(use, each, visit) for key, each in value.items()}
        return _same_or(value, items)
    return value


def _same_or(before: Any, after: Any) -> Any:
    """Return `before` itself if nothing changed, so that most events need no copy."""
    return before if before == after else after


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, Use | None], ...]:
    """Return the fields to look into, with their use; None for structs inside. Raise KeyError for an unknown struct.

    Harmless fields and witnesses are left out. Nothing of a struct that is not in the table would be looked at.
    """
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
