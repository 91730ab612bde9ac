"""Finding and listing bundles: one pass over the folder, reading only a few fields of each run.json. A folder that is
called like a run is taken for that run without a look into it."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, unknown_name
from flagperf.files import exists, is_folder
from flagperf.store.bundle import read_json
from flagperf.store.paths import EVENTS, MANIFEST_FILE, RUN_FILE
from flagperf.store.run import EXIT_CODES
from flagperf.store.run_line import RunLine, run_line


def runs_directory(asked: str | None) -> Path:
    """`--runs-dir`, else FLAGPERF_RUNS_DIR, else ./runs."""
    return Path(asked or os.environ.get("FLAGPERF_RUNS_DIR") or "runs")


def list_runs(runs_dir: Path) -> list[RunLine]:
    """Oldest first. Folders that are not bundles are skipped."""
    return [run_line(path) for path in bundle_paths(runs_dir)]


def bundle_paths(runs_dir: Path) -> list[Path]:
    """Oldest first, whether they can be read or not."""
    return [runs_dir / found.folder for found in named_folders(runs_dir)]


def unfinished_runs(runs_dir: Path) -> list[RunLine]:
    """Runs without an ending, oldest first. Sealed bundles are not read."""
    paths = [path for path in bundle_paths(runs_dir) if not exists(path / MANIFEST_FILE)]
    return [line for line in map(run_line, paths) if line.status not in EXIT_CODES]


class Latest(msgspec.Struct, frozen=True):
    path: Path
    newer: RunLine | None = None
    """The newest run, where that has not finished."""


def find_latest(runs_dir: Path) -> Latest:
    """The latest run that has ended. Raises BadInput where there is none."""
    newest: RunLine | None = None
    for path in reversed(bundle_paths(runs_dir)):
        line = run_line(path)
        if line.status in EXIT_CODES:
            return Latest(path, newest)
        newest = newest or line
    if newest is None:
        raise _not_found("latest", runs_dir, [])
    raise BadInput(f"no run in {runs_dir} has finished; the newest, {newest.id}, is {newest.status}: name it to use it")


def find_run(word: str, runs_dir: Path, tell: Callable[[Latest], None] = lambda _latest: None) -> Path:
    """Resolve RUN of the command line: a path, the id of a run or the name of its folder, a unique prefix of one of
    these, or `latest`, of which `tell` is told."""
    as_path = Path(word)
    if os.path.lexists(as_path / RUN_FILE):
        return as_path
    if word == "latest":
        latest = find_latest(runs_dir)
        tell(latest)
        return latest.path
    known = named_folders(runs_dir)
    matches = _matching(word, known)
    if not matches:
        raise _not_found(word, runs_dir, sorted({name for each in known for name in each.names}))
    if len(matches) == 1:
        return runs_dir / matches[0].folder
    folders = [each.folder for each in matches]
    some = ", ".join([*folders[:4], *(["..."] if len(matches) > 4 else [])])
    more = "name one of the folders" if len({each.id for each in matches}) == 1 else "give more of the id"
    raise BadInput(f"{word!r} is ambiguous: {len(matches)} runs match in {runs_dir} ({some}); {more}")


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


# --- which folder is which run --------------------------------------------------------------------------------------

_RUN_ID = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[\w.+-]+-[0-9]+x[0-9]+-[0-9a-f]{6}(?:-redacted)?", re.ASCII)


class NamedFolder(msgspec.Struct, frozen=True):
    """A bundle of the runs directory."""

    time: str
    """When the run was made, as its id has it. Empty where nothing says so."""
    id: str
    """Of the run; the folder's name where it cannot be read."""
    folder: str

    @property
    def names(self) -> tuple[str, str]:
        return self.id, self.folder


class _Made(msgspec.Struct, frozen=True):
    id: str
    created: str


def named_folders(runs_dir: Path) -> list[NamedFolder]:
    """Oldest first. run.json is read only of folders that are not called like a run."""
    try:
        entries = os.listdir(runs_dir)  # noqa: PTH208  only names are needed
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot read the runs directory {runs_dir}: {error.strerror}") from None
    names = (name for name in entries if not name.startswith(".") and os.path.lexists(runs_dir / name / RUN_FILE))
    found = [_named(runs_dir, name) for name in names]
    return sorted(found, key=lambda each: (each.time, each.id, each.folder))


def _named(runs_dir: Path, folder: str) -> NamedFolder:
    by_name = _RUN_ID.fullmatch(folder)
    if by_name:
        return NamedFolder(by_name[1], folder, folder)
    try:
        made: _Made = read_json(runs_dir / folder / RUN_FILE, _Made)
    except BadInput:
        return NamedFolder("", folder, folder)
    by_id = _RUN_ID.fullmatch(made.id)
    return NamedFolder(by_id[1] if by_id else _as_in_ids(made.created), made.id, folder)


def _as_in_ids(created: str) -> str:
    try:
        moment = datetime.datetime.fromisoformat(created)
        return moment.astimezone(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    except (ValueError, OverflowError):
        return ""


def _matching(word: str, known: Sequence[NamedFolder]) -> list[NamedFolder]:
    """A folder of this name, else runs with this id, else all that begin so."""
    whole = [each for each in known if each.folder == word] or [each for each in known if each.id == word]
    return whole or [each for each in known if any(name.startswith(word) for name in each.names)]
