"""The runs to export. All of them are read here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from flagperf.files import read_regular
from flagperf.metrics import Observed
from flagperf.plausibility.doubts import read_marked
from flagperf.store.bundle import MAX_JSON_BYTES, read_record
from flagperf.store.labels import Labels
from flagperf.store.paths import MANIFEST_FILE
from flagperf.store.run import RecordedRun, Run


class Exported(msgspec.Struct, frozen=True):
    recorded: RecordedRun
    manifest_sha256: str
    """Of its MANIFEST: what it is, byte by byte. Empty for a run that is not finished."""

    @property
    def run(self) -> Run:
        return self.recorded.run

    @property
    def is_finished(self) -> bool:
        return bool(self.manifest_sha256) and self.run.ending is not None

    @property
    def labels(self) -> Labels:
        return self.recorded.labels

    @property
    def path(self) -> Path:
        return Path(self.recorded.path)

    def observed(self) -> Observed:
        """Its raw files."""
        return Observed(self.run.job, self.run.manifest, read_record(self.path))


def read_exported(path: Path) -> Exported:
    """Raises BadInput for a bundle that cannot be read."""
    (recorded,) = read_marked([path])
    return Exported(recorded, _manifest_sha256(path))


def _manifest_sha256(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES)).hexdigest()
    except FileNotFoundError:
        return ""
