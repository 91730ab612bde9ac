"""`flagperf runs rm`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.options import echo_json, note
from flagperf.cli.output import echo
from flagperf.cli.run_argument import find_bundle
from flagperf.errors import BadInput
from flagperf.store.removal import Removable, removable, remove
from flagperf.units import mebibytes


def remove_runs(words: Sequence[str], runs_dir: Path, *, yes: bool, force: bool, as_json: bool) -> None:
    """All of them, or none: what stands against one of them is said before the first is removed."""
    found = {bundle.path: bundle for bundle in (removable(find_bundle(word, runs_dir), force=force) for word in words)}
    bundles = list(found.values())
    if not yes and not _is_agreed(bundles):
        note("nothing was removed")
        return
    remove(bundles)
    if as_json:
        echo_json([{"id": each.line.id, "path": str(each.path), "bytes": each.num_bytes} for each in bundles])
    else:
        for each in bundles:
            echo(f"removed {each.path}")


def _is_agreed(bundles: Sequence[Removable]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        names = ", ".join(each.line.id for each in bundles)
        raise BadInput(f"removing {names} needs your consent, and there is no terminal to ask on; give --yes")
    rows = [[str(each.path), each.line.status, mebibytes(each.num_bytes)] for each in bundles]
    echo_columns(["RUN", "STATUS", "SIZE"], rows)
    many = f"these {len(bundles)} runs" if len(bundles) > 1 else "this run"
    return click.confirm(f"Remove {many} for good?", err=True)
