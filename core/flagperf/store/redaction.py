"""redaction.json: what was replaced in a redacted copy of a run, and what proves later which original it is of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec

from flagperf.errors import BadInput
from flagperf.store.bundle import read_json
from flagperf.store.paths import REDACTION_FILE

REDACTION_SCHEMA = 1
"""Incremented when the file changes in a way that an older reader would misread."""


class Committed(msgspec.Struct, frozen=True):
    """A value that is not here, by an HMAC under a salt which only the owner has."""

    kind: str
    """What it is: a host, a card, a metric."""
    name: str
    """Its pseudonym, or the name of the metric."""
    commitment: str
    """HMAC-SHA256 of kind, name and value."""


class Redaction(msgspec.Struct, frozen=True):
    schema: int
    flagperf_version: str
    form: Literal["identities", "ratios"]
    original_run: str
    """The id of the run that this is a copy of."""
    original_manifest: str
    """sha256 of its MANIFEST. Empty where nothing random is among the replaced values: they could be guessed, and the
    guess checked against this."""
    replaced: tuple[Committed, ...] = ()
    """One for each pseudonym."""
    withheld: tuple[Committed, ...] = ()
    """Of `ratios`: one for the value of each metric."""
    manifest_commitment: str = ""
    """Of the original's MANIFEST."""
    left_out: tuple[str, ...] = ()
    """Files of the original that are not in this copy."""

    @property
    def summary(self) -> str:
        """`2 hosts, 8 cards`."""
        counts = Counter(each.kind for each in self.replaced)
        names = {"address": "addresses", "pci": "PCI addresses", "uuid": "UUIDs", "mac": "MAC addresses"}
        listed = [f"{count} {names.get(kind, kind + 's') if count > 1 else kind}" for kind, count in counts.items()]
        return ", ".join(listed) or "nothing"


def read_redaction(bundle: Path) -> Redaction | None:
    """None for a run that is not redacted. Raises BadInput for a file that cannot be read."""
    path = bundle / REDACTION_FILE
    if not path.exists():
        return None
    schema = read_json(path, _OfAnySchema).schema
    if schema != REDACTION_SCHEMA:
        raise BadInput(f"{path} has schema {schema}, this flagperf reads {REDACTION_SCHEMA}; install a newer flagperf")
    found: Redaction = read_json(path, Redaction)
    return found


class _OfAnySchema(msgspec.Struct, frozen=True):
    schema: int
