"""RUN of the command line: finds the bundle, and says so where `latest` is not the newest."""

from __future__ import annotations

from pathlib import Path

from flagperf.cli.options import note
from flagperf.commands import flagperf_command
from flagperf.store import groups, listing


def find_run(word: str, runs_dir: Path) -> Path:
    return listing.find_run(word, runs_dir, _tell)


def find_several(word: str, runs_dir: Path) -> list[Path]:
    """Of a word that may stand for several runs."""
    return groups.find_runs(word, runs_dir, _tell)


def find_bundle(word: str, runs_dir: Path) -> Path:
    """Also a damaged one, without run.json."""
    return listing.find_bundle(word, runs_dir, _tell)


def _tell(latest: listing.Latest) -> None:
    newer = latest.newer
    if newer is None:
        return
    watch = f"; to look at it: {flagperf_command('runs', 'watch', newer.id)}" if newer.status == "running" else ""
    note(f"latest: {latest.path.name}, the latest that has finished; the newer {newer.id} is {newer.status}{watch}")
