"""Finding and listing bundles: one pass over the folder, reading only a few fields of each run.json."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, unknown_name
from flagperf.files import exists, is_folder
from flagperf.store.bundle import read_json
from flagperf.store.paths import EVENTS, MANIFEST_FILE, RUN_FILE
from flagperf.store.run import Ending


class _Job(msgspec.Struct, frozen=True):
    vendor: str
    profile: str


class _Run(msgspec.Struct, frozen=True):
    id: str
    created: str
    job: _Job
    ending: Ending | None = None
    simulated: bool = False


class RunLine(msgspec.Struct, frozen=True):
    """One line of `flagperf runs list`."""

    id: str
    created: str
    vendor: str
    profile: str
    status: str


def runs_directory(asked: str | None) -> Path:
    """`--runs-dir`, else FLAGPERF_RUNS_DIR, else ./runs."""
    return Path(asked or os.environ.get("FLAGPERF_RUNS_DIR") or "runs")


def list_runs(runs_dir: Path) -> list[RunLine]:
    """Oldest first, because ids begin with a timestamp. Folders that are not bundles are skipped."""
    return [line for name in _bundle_names(runs_dir) if (line := _line(runs_dir / name)) is not None]


def find_run(word: str, runs_dir: Path) -> Path:
    """Resolve RUN of the command line: a path, a unique prefix of an id, or `latest`."""
    as_path = Path(word)
    if os.path.lexists(as_path / RUN_FILE):
        return as_path
    names = _bundle_names(runs_dir)
    if word == "latest" and names:
        return runs_dir / names[-1]
    matches = [name for name in names if name.startswith(word)]
    if not matches:
        raise _not_found(word, runs_dir, names)
    if len(matches) == 1:
        return runs_dir / matches[0]
    some = ", ".join([*matches[:4], *(["..."] if len(matches) > 4 else [])])
    raise BadInput(f"{word!r} is ambiguous: {len(matches)} runs match in {runs_dir} ({some}); give more of the id")


def find_bundle(word: str, runs_dir: Path) -> Path:
    """Like find_run, but also finds a damaged bundle without run.json."""
    folders = (Path(word), runs_dir / word)
    return next((folder for folder in folders if _was_bundle(folder)), None) or find_run(word, runs_dir)


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


def _line(path: Path) -> RunLine | None:
    try:
        run: _Run = read_json(path / RUN_FILE, _Run)
    except BadInput:
        return RunLine(path.name, "", "", "", "unreadable")
    if run.ending is not None:
        status: str = run.ending.status
    else:
        status = "running or killed" if not (path / MANIFEST_FILE).exists() else "unreadable"
    vendor = f"{run.job.vendor} (simulated)" if run.simulated else run.job.vendor
    return RunLine(run.id, run.created, vendor, run.job.profile, status)
