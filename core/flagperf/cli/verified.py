"""A warning of commands that print what a bundle says."""

from __future__ import annotations

from pathlib import Path

from flagperf.cli.options import note
from flagperf.commands import flagperf_command
from flagperf.verify import verify_bundle


def warn_unless_verified(path: Path) -> None:
    problems = verify_bundle(path).problems
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        command = flagperf_command("runs", "verify", path)
        note(f"warning: {path.name} is not verified: {problems[0]}{more}; see `{command}`")
