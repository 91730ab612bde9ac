"""Sealing a bundle again whose files a test has changed."""

from __future__ import annotations

from pathlib import Path

from flagperf.bundle.bundle import file_digests, witness_files, write_manifest
from flagperf.bundle.paths import PARENT_EVENTS


def seal_again(path: Path) -> None:
    """Rewrite the parent's last event and MANIFEST, as somebody would who wants no hash to tell of the change."""
    parent = path / PARENT_EVENTS
    lines = parent.read_bytes().splitlines(keepends=True)
    parent.write_bytes(b"".join(line for line in lines if b'"type":"bundle_sealed"' not in line))
    write_manifest(path, witness_files(path, file_digests(path)))
