"""Finding and listing bundles: one pass over the folder, reading only a few fields of each run.json. A folder that is
called like a run is taken for that run without a look into it.
"""

from __future__ import annotations

import datetime
import glob
import os
import re
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from flagperf.bundle.bundle import read_json, schema_problem
from flagperf.bundle.liveness import is_held, parent_of
from flagperf.bundle.paths import BUNDLE_FILES, EVENTS, FOLDERS, MANIFEST_FILE, RUN_FILE
from flagperf.bundle.run_record import (
    EXIT_CODES,
    WITH_RESULTS,
    Ending,
    Labels,
    RunGroup,
    checked_tag,
    read_labels,
    unfinished,
)
from flagperf.errors import BadInput, BundleFailed, unknown_name
from flagperf.files import exists, is_folder, kind_of
from flagperf.spec.manifest import RowFigure
from flagperf.text import flagperf_command

# RunLine: a run among many. Only a few fields of its run.json are decoded.


UNREADABLE = "unreadable"

STATUSES = (*EXIT_CODES, "running", "killed", "unknown", UNREADABLE)
"""All that a line may have."""


class Headline(msgspec.Struct, frozen=True):
    """A main result of a run. Marks are caveats, as everywhere."""

    name: str
    value: float | int
    unit: str
    marks: tuple[str, ...] = ()


class RunLine(msgspec.Struct, frozen=True):
    """One line of `flagperf runs list`."""

    id: str
    created: str = ""
    case: str = ""
    vendor: str = ""
    device: str = ""
    shape: str = ""
    profile: str = ""
    precision: str = ""
    headline: tuple[Headline, ...] = ()
    """Of a run that has results, the most important one first."""
    status: str = UNREADABLE
    host: str = ""
    """Where the command of an unfinished run runs or ran."""
    simulated: bool = False
    redacted: bool = False
    """It is a copy that `runs redact` made."""
    tags: tuple[str, ...] = ()
    note: str = ""
    problem: str = ""
    """Why it, or its tags and note, cannot be read."""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Device(msgspec.Struct, frozen=True):
    short_name: str


class _Node(msgspec.Struct, frozen=True):
    devices: tuple[_Device, ...]


class _Job(msgspec.Struct, frozen=True):
    case: str
    vendor: str
    profile: str
    precision: _Named
    nodes: tuple[_Node, ...]


class _Page(msgspec.Struct, frozen=True):
    columns: tuple[str, ...] = ()


class _Manifest(msgspec.Struct, frozen=True):
    kind: str
    page: _Page
    figures: tuple[RowFigure, ...] = ()


class _Metric(msgspec.Struct, frozen=True):
    name: str
    unit: str
    value: float | int | None = None
    marks: tuple[str, ...] = ()


class _Run(msgspec.Struct, frozen=True):
    id: str
    created: str
    job: _Job
    manifest: _Manifest
    schema: object = None
    metric_versions: dict[str, int] | None = None
    ending: Ending | None = None
    metrics: tuple[_Metric, ...] = ()
    simulated: bool = False
    redacted: bool = False


def run_line(path: Path) -> RunLine:
    """Of a bundle. What cannot be read says so."""
    labels, problem = _labels(path)
    try:
        run: _Run = read_json(path / RUN_FILE, _Run)
        unread = schema_problem(run.schema, run.metric_versions is not None)
        if unread:
            raise BadInput(f"{path / RUN_FILE} {unread}")
    except BadInput as error:
        return RunLine(path.name, tags=labels.tags, note=labels.note, problem=str(error))
    status, host = _status(path, run)
    devices = run.job.nodes[0].devices if run.job.nodes else ()
    return RunLine(
        id=run.id,
        created=run.created,
        case=run.job.case,
        vendor=run.job.vendor,
        device=devices[0].short_name if devices else "",
        shape=f"{len(run.job.nodes)}x{len(devices)}",
        profile=run.job.profile,
        precision=run.job.precision.name,
        headline=tuple(_headline(run)) if status in WITH_RESULTS else (),
        status=status,
        host=host,
        simulated=run.simulated,
        redacted=run.redacted,
        tags=labels.tags,
        note=labels.note,
        problem=problem,
    )


def _status(path: Path, run: _Run) -> tuple[str, str]:
    if run.ending is not None:
        return run.ending.status, ""
    return (UNREADABLE, "") if exists(path / MANIFEST_FILE) else unfinished(parent_of(path))


def _labels(path: Path) -> tuple[Labels, str]:
    try:
        return read_labels(path), ""
    except BadInput as error:
        return Labels(), str(error)


def _headline(run: _Run) -> list[Headline]:
    from flagperf.metrics.registry import headline_names

    names = headline_names(run.manifest.kind, run.manifest.figures, run.manifest.page.columns)
    found = {metric.name: metric for metric in run.metrics}
    return [
        Headline(name, metric.value, metric.unit, metric.marks)
        for name in names
        if (metric := found.get(name)) is not None and metric.value is not None
    ]


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


# Several runs that belong together: those of one command (`run --repeat`), those with a tag, those of a pattern.


PREFIX, TAG = "group-", "tag:"
"""Of the id of every group; of a word that names the runs with a tag."""


class _GroupOf(msgspec.Struct, frozen=True):
    group: RunGroup | None = None


def find_runs(word: str, runs_dir: Path, tell: Callable[[Latest], None] = lambda _latest: None) -> list[Path]:
    """Resolve a word of the command line that may stand for several runs: a run as `find_run` knows it, RUN,RUN, a
    pattern, tag:WORD, a group. `tell` is told of `latest`."""
    if word.startswith(TAG):
        return tagged_runs(word.removeprefix(TAG), runs_dir)
    if word.startswith(PREFIX):
        return _of_group(word, runs_dir)
    if os.path.lexists(word):
        return [find_run(word, runs_dir, tell)]
    if any(letter in word for letter in "*?["):
        return matching_runs(word, runs_dir)
    return [find_run(each.strip(), runs_dir, tell) for each in word.split(",")]


def _of_group(word: str, runs_dir: Path) -> list[Path]:
    """All its runs, or those of an arm: `group-1a2b3c4d/B`."""
    name, slash, arm = word.partition("/")
    found, arms = find_group(name, runs_dir)
    if slash and arm not in arms:
        raise unknown_name(f"arm of {found}", arm, [each for each in arms if each])
    return arms[arm] if slash else [path for paths in arms.values() for path in paths]


def find_group(word: str, runs_dir: Path) -> tuple[str, dict[str, list[Path]]]:
    """`group-1a2b3c4d`, or the beginning of it -> its id, and its runs by arm, in the order of running. The arm of runs
    that did not take turns is empty."""
    known = _groups(runs_dir)
    matches = [name for name in known if name.startswith(word)]
    if not matches:
        raise unknown_name("group", word, known, f"(in {runs_dir}; `run --repeat` makes one)")
    if len(matches) > 1:
        raise BadInput(f"{word!r} is ambiguous: {', '.join(matches[:4])}; give more of the id")
    arms: dict[str, list[Path]] = {}
    for group, path in sorted(known[matches[0]], key=lambda member: member[0].index):
        arms.setdefault(group.arm, []).append(path)
    return matches[0], arms


def tagged_runs(tag: str, runs_dir: Path) -> list[Path]:
    found = [path for path in bundle_paths(runs_dir) if checked_tag(tag) in read_labels(path).tags]
    if not found:
        raise BadInput(f"no run in {runs_dir} has the tag {tag!r}; see --runs-dir")
    return found


def matching_runs(pattern: str, runs_dir: Path) -> list[Path]:
    """Of ids in the runs directory; of paths, if the pattern has a slash."""
    if os.sep in pattern:
        found = [Path(path) for path in sorted(glob.glob(pattern))]  # noqa: PTH207  the pattern may be absolute
        found = [path for path in found if os.path.lexists(path / RUN_FILE)]
    else:
        known = named_folders(runs_dir)
        found = [runs_dir / each.folder for each in known if any(fnmatchcase(name, pattern) for name in each.names)]
    if not found:
        raise BadInput(f"no run matches {pattern!r} in {runs_dir}; see --runs-dir, and put patterns into quotes")
    return found


def _groups(runs_dir: Path) -> dict[str, list[tuple[RunGroup, Path]]]:
    found: dict[str, list[tuple[RunGroup, Path]]] = {}
    for path in bundle_paths(runs_dir):
        try:
            group = read_json(path / RUN_FILE, _GroupOf).group
        except BadInput:  # of a damaged bundle nobody knows whether it belongs to one
            continue
        if group is not None:
            found.setdefault(group.id, []).append((group, path))
    return found


# Removing bundles, and nothing else: a folder with anything that no run writes is left as it is.


_KNOWN = {str(name) for name in (*BUNDLE_FILES, *FOLDERS)}

_REMOVING = ".removing-"


class Removable(msgspec.Struct, frozen=True):
    """A bundle that may be removed."""

    path: Path
    line: RunLine
    num_bytes: int


def removable(bundle: Path, *, force: bool) -> Removable:
    """Raises BadInput for what is no bundle, or belongs to a run that is running. `force`: also where that cannot be
    seen from here."""
    path = Path(os.path.abspath(bundle))  # noqa: PTH100  `resolve` would follow the link that is refused below
    if path.is_symlink() or not path.is_dir():
        raise BadInput(f"{path} is {kind_of(path)}, not the folder of a run; nothing was removed")
    foreign = [name for name in sorted(os.listdir(path)) if not _is_own(name)]  # noqa: PTH208  only names are needed
    if foreign:
        raise BadInput(f"{path} has {foreign[0]!r}, which is no file of a run; move it away first; nothing was removed")
    _check_ended(path, force)
    return Removable(path, run_line(path), _size(path))


def _is_own(name: str) -> bool:
    """Files are written under another name first (`.run.json.x7f2`), which a killed command leaves."""
    return name in _KNOWN or any(name.startswith(f".{known}.") for known in _KNOWN)


def _check_ended(path: Path, force: bool) -> None:
    if is_held(path):
        raise BadInput(f"{path.name} is running; end it first; nothing was removed")
    if (path / MANIFEST_FILE).exists():
        return
    parent = parent_of(path)
    if parent.state == "alive":
        raise BadInput(f"{path.name} is running on {parent.host}; end it first; nothing was removed")
    if parent.state == "unknown" and not force:
        where = f"its command was started on {parent.host}" if parent.host else "nothing says where its command runs"
        raise BadInput(
            f"{path.name} has no ending, and whether it is running cannot be seen from here: {where}; look there, and "
            "give --force if it is not; nothing was removed"
        )


def _size(path: Path) -> int:
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in files)


def remove(bundles: Sequence[Removable]) -> None:
    """Each is renamed first, so that no half of a bundle is ever listed. Links in it are removed, never followed."""
    for bundle in bundles:
        aside = bundle.path.with_name(f"{_REMOVING}{bundle.path.name}")
        try:
            bundle.path.rename(aside)
            shutil.rmtree(aside)
        except OSError as error:
            raise BundleFailed(f"cannot remove {bundle.path}: {error.strerror} ({error.filename})") from None
