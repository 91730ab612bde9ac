"""Adapters for the suites to judge: the one that `vendors new` writes, whole or with one thing wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from flagperf.cli.vendors import write_adapter

TESTS = "tests/test_acme_conformance.py"
METADATA = "Metadata-Version: 2.1\nName: flagperf-acme\nVersion: 0.1.0\nRequires-Dist: flagperf>=0.1.0\n"


@dataclass(frozen=True)
class Change:
    file: str
    old: str
    new: str


def make_adapter(folder: Path, *changes: Change) -> Path:
    """Installed as far as Python can tell: its metadata stand beside its package."""
    write_adapter("acme", folder)
    for change in changes:
        path = folder / (change.file if "/" in change.file else f"src/flagperf_acme/{change.file}")
        text = path.read_text()
        assert text.count(change.old) == 1, f"{change.old!r} is not once in {change.file}"
        path.write_text(text.replace(change.old, change.new))
    metadata = folder / "src" / "flagperf_acme-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text("[flagperf]\nacme = flagperf_acme\n")
    return folder


def run_suites(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *f"-m pytest -q -c {os.devnull} -p no:cacheprovider -p no:xdist".split(), *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
