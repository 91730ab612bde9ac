"""CaseReference: what `flagperf_cases` gives. Everything else about a case stands in its case.toml."""

from __future__ import annotations

from pathlib import Path

import msgspec


class CaseReference(msgspec.Struct, frozen=True):
    """`target` is `module:function`, imported in the worker only; the function takes the worker's Context."""

    target: str
    manifest: Path


class DataFile(msgspec.Struct, frozen=True):
    """A file that a case read, named relative to --data-dir. A case's `check_files` gives these."""

    path: str
    num_bytes: int
    sha256: str
