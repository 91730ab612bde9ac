"""Bundles that are not verified, in commands that print what a bundle says."""

from __future__ import annotations

from pathlib import Path

from flagperf.cli.options import note
from flagperf.verify import trouble_of


def warn_unless_verified(path: Path) -> None:
    trouble = trouble_of(path)
    if trouble:
        note(f"warning: {trouble}")
