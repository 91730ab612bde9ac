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
from flagperf.redact.bundle import build, log_lines
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
