"""Making a redacted copy: find what identifies, write the copy beside its place, verify it, put it there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.events import read_events
from flagperf.files import cannot_write, making_folder
from flagperf.plugins import core_version
from flagperf.redact.bundle import build, log_lines
from flagperf.redact.commitments import KEY_SCHEMA, RedactionKey, Reference, new_salt, write_key
from flagperf.redact.pseudonyms import Findings, Replaced
from flagperf.redact.values import gather, visited
from flagperf.store.bundle import read_bundle
from flagperf.store.paths import EVENTS, LOGS, OPERATORS_FILE, SAMPLES
from flagperf.store.recording import decode_operators
from flagperf.store.redaction import Redaction, read_redaction
from flagperf.store.run import RecordedRun
from flagperf.verify import verify_bundle


class Wishes(msgspec.Struct, frozen=True):
    """How to redact."""

    with_logs: bool = True
    words: tuple[str, ...] = ()
    """Texts to replace besides."""
    users: tuple[str, ...] = ()
    """User names that are known."""
    reference: Reference | None = None
    """Leave ratios to this in place of absolute values."""


class Redacted(msgspec.Struct, frozen=True):
    path: str
    key: str
    redaction: Redaction


def redact(original: Path, out: Path, wishes: Wishes, key_path: Path | None = None) -> Redacted:
    """The copy is in the folder `out`, under an id of its own. Raises BadInput unless the original verifies."""
    recorded = _verified(original)
    key = _key(original, recorded, wishes)
    target = out / key.redacted_run
    if os.path.lexists(target):
        raise BadInput(f"{target} exists; remove it, or choose another folder with --out")
    where = key_path or original.resolve().parent / f"{key.redacted_run}.key.json"
    try:
        with making_folder(out), tempfile.TemporaryDirectory(dir=out, prefix=".redact-") as folder:
            copy = build(original, Path(folder), key)
            _check(copy, wishes)
            write_key(where, key)
            _place(copy, target, where)
    except OSError as error:
        raise cannot_write(f"cannot write {target}: {error.strerror} ({error.filename}); see --out", error) from None
    redaction = read_redaction(target)
    assert redaction is not None
    return Redacted(str(target), str(where), redaction)


def _verified(original: Path) -> RecordedRun:
    problems = verify_bundle(original).problems
    if problems:
        raise BadInput(f"{original.name} is not verified, so it is not redacted: {problems[0]}")
    redaction = read_redaction(original)
    if redaction is not None:
        raise BadInput(f"{original.name} is redacted already; redact the original, {redaction.original_run}")
    return read_bundle(original)


def _key(original: Path, recorded: RecordedRun, wishes: Wishes) -> RedactionKey:
    suffix = "redacted" if wishes.reference is None else "ratios"
    return RedactionKey(
        schema=KEY_SCHEMA,
        flagperf_version=core_version(),
        original_run=recorded.run.id,
        redacted_run=f"{recorded.run.id}-{suffix}",
        salt=new_salt(),
        replaced=found_in(original, recorded, wishes),
        with_logs=wishes.with_logs,
        reference=wishes.reference,
    )


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
    if wishes.reference is None:
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


def _place(copy: Path, target: Path, key: Path) -> None:
    try:
        copy.rename(target)
    except BaseException:
        key.unlink()
        raise
