"""redaction.json: what was replaced in a redacted copy of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.store.bundle import read_json
from flagperf.store.paths import REDACTION_FILE

REDACTION_SCHEMA = 1
"""Incremented when the file changes in a way that an older reader would misread."""


class Redaction(msgspec.Struct, frozen=True):
    schema: int
    flagperf_version: str
    original_run: str
    """The id of the run that this is a copy of."""
    replaced: dict[str, int] = {}
    """Kind of identity -> the number of its pseudonyms in this copy."""
    left_out: tuple[str, ...] = ()
    """Files of the original that are not in this copy."""

    @property
    def summary(self) -> str:
        """`2 hosts, 8 cards`."""
        names = {"address": "addresses", "pci": "PCI addresses", "uuid": "UUIDs", "mac": "MAC addresses"}
        words = {kind: names.get(kind, f"{kind}s") if count > 1 else kind for kind, count in self.replaced.items()}
        return ", ".join(f"{count} {words[kind]}" for kind, count in self.replaced.items()) or "nothing"


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
