"""Finding and listing bundles: one pass over the folder, reading only a few fields of each run.json."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, unknown_name
from flagperf.files import exists, is_folder
from flagperf.store.paths import EVENTS, MANIFEST_FILE, RUN_FILE
from flagperf.store.run import EXIT_CODES
from flagperf.store.run_line import RunLine, run_line


def runs_directory(asked: str | None) -> Path:
    """`--runs-dir`, else FLAGPERF_RUNS_DIR, else ./runs."""
    return Path(asked or os.environ.get("FLAGPERF_RUNS_DIR") or "runs")


def list_runs(runs_dir: Path) -> list[RunLine]:
    """Oldest first, because ids begin with a timestamp. Folders that are not bundles are skipped."""
    return [run_line(runs_dir / name) for name in _bundle_names(runs_dir)]


def bundle_paths(runs_dir: Path) -> list[Path]:
    """Oldest first, whether they can be read or not."""
    return [runs_dir / name for name in _bundle_names(runs_dir)]


def unfinished_runs(runs_dir: Path) -> list[RunLine]:
    """Runs without an ending, oldest first. Sealed bundles are not read."""
    names = [name for name in _bundle_names(runs_dir) if not exists(runs_dir / name / MANIFEST_FILE)]
    return [line for line in (run_line(runs_dir / name) for name in names) if line.status not in EXIT_CODES]


class Latest(msgspec.Struct, frozen=True):
    path: Path
    newer: RunLine | None = None
    """The newest run, where that has not finished."""


def find_latest(runs_dir: Path) -> Latest:
    """The latest run that has ended. Raises BadInput where there is none."""
    newest: RunLine | None = None
    for name in reversed(_bundle_names(runs_dir)):
        line = run_line(runs_dir / name)
        if line.status in EXIT_CODES:
            return Latest(runs_dir / name, newest)
        newest = newest or line
    if newest is None:
        raise _not_found("latest", runs_dir, [])
    raise BadInput(f"no run in {runs_dir} has finished; the newest, {newest.id}, is {newest.status}: name it to use it")


def find_run(word: str, runs_dir: Path, tell: Callable[[Latest], None] = lambda _latest: None) -> Path:
    """Resolve RUN of the command line: a path, a unique prefix of an id, or `latest`, of which `tell` is told."""
    as_path = Path(word)
    if os.path.lexists(as_path / RUN_FILE):
        return as_path
    if word == "latest":
        latest = find_latest(runs_dir)
        tell(latest)
        return latest.path
    names = _bundle_names(runs_dir)
    matches = [name for name in names if name.startswith(word)]
    if not matches:
        raise _not_found(word, runs_dir, names)
    if len(matches) == 1:
        return runs_dir / matches[0]
    some = ", ".join([*matches[:4], *(["..."] if len(matches) > 4 else [])])
    raise BadInput(f"{word!r} is ambiguous: {len(matches)} runs match in {runs_dir} ({some}); give more of the id")


def find_bundle(word: str, runs_dir: Path, tell: Callable[[Latest], None] = lambda _latest: None) -> Path:
    """Like find_run, but also finds a damaged bundle without run.json."""
    folders = (Path(word), runs_dir / word)
    return next((folder for folder in folders if _was_bundle(folder)), None) or find_run(word, runs_dir, tell)


def _was_bundle(folder: Path) -> bool:
    is_left = exists(folder / MANIFEST_FILE) or is_folder(folder / EVENTS)
    return is_left and not os.path.lexists(folder / RUN_FILE)


def _not_found(word: str, runs_dir: Path, names: list[str]) -> BadInput:
    folder = next((folder for folder in (Path(word), runs_dir / word) if is_folder(folder)), None)
    if folder is not None:
        return BadInput(f"{folder} has no {RUN_FILE}: it is not a bundle, or it is damaged")
    if names:
        return unknown_name("run", word, names, f"(in {runs_dir})")
    makes = f"create one with `{flagperf_command('run')} CASE`"
    return BadInput(f"there are no runs in {runs_dir}; {makes}, or choose another folder with --runs-dir")


def _bundle_names(runs_dir: Path) -> list[str]:
    try:
        entries = os.listdir(runs_dir)  # noqa: PTH208  only names are needed
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot read the runs directory {runs_dir}: {error.strerror}") from None
    return sorted(name for name in entries if not name.startswith(".") and os.path.lexists(runs_dir / name / RUN_FILE))
