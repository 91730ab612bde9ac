"""Whether a redacted copy was made of an original, as the owner's key says."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flagperf.errors import BadInput
from flagperf.redact.bundle import build
from flagperf.redact.commitments import RedactionKey
from flagperf.redact.ratios import withheld_values
from flagperf.store.bundle import read_bundle
from flagperf.store.paths import MANIFEST_FILE
from flagperf.store.redaction import Committed, Redaction, read_redaction
from flagperf.store.witness import file_digests
from flagperf.verify import verify_bundle


def redaction_problems(redacted: Path, original: Path, key: RedactionKey) -> Iterator[str]:
    """Why the one is not a copy of the other. Nothing is yielded if it is one: made again from the original, the copy
    has the same bytes."""
    redaction = read_redaction(redacted)
    if redaction is None:
        raise BadInput(f"{redacted} is not redacted: it has no redaction.json")
    broken = [f"{redacted.name}: {problem}" for problem in verify_bundle(redacted).problems]
    broken += [f"{original.name}: {problem}" for problem in verify_bundle(original).problems]
    if broken:
        yield from broken
        return
    others = list(_identity_problems(redaction, original, key))
    if others:
        yield from others
        return
    with tempfile.TemporaryDirectory(prefix="flagperf-") as folder:
        again = build(original, Path(folder), key)
        yield from _commitment_problems(redaction, again, original, key)
        yield from _file_problems(redacted, again)


def _identity_problems(redaction: Redaction, original: Path, key: RedactionKey) -> Iterator[str]:
    manifest = hashlib.sha256((original / MANIFEST_FILE).read_bytes()).hexdigest()
    if redaction.original_manifest not in ("", manifest):
        yield f"{original.name} is another run: its MANIFEST is not the one that redaction.json names"
    elif redaction.manifest_commitment != key.commitment("manifest", str(MANIFEST_FILE), manifest):
        yield f"{original.name} is another run, or the key is another one: the commitment to its MANIFEST differs"


def _commitment_problems(redaction: Redaction, again: Path, original: Path, key: RedactionKey) -> Iterator[str]:
    values = [(each.kind, each.pseudonym, each.value) for each in key.replaced]
    if key.reference is not None:
        values += withheld_values(read_bundle(original).run, key.reference)
    known = {key.commit(*value) for value in values}
    for each in _commitments(redaction):
        if each not in known:
            yield f"the commitment to {each.kind} {each.name} is to another value"
    expected = read_redaction(again)
    assert expected is not None
    found = set(_commitments(redaction))
    missing = [each for each in _commitments(expected) if each not in found]
    yield from (f"there is no commitment to {each.kind} {each.name}" for each in missing)


def _commitments(redaction: Redaction) -> tuple[Committed, ...]:
    return (*redaction.replaced, *redaction.withheld)


def _file_problems(redacted: Path, again: Path) -> Iterator[str]:
    before, now = file_digests(again), file_digests(redacted)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield f"{name} is not what redaction makes of the original"
