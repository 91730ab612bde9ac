"""Find, list, group and remove bundles. Only a few fields of each run.json are decoded (RunHead), and none where the
folder is named like a run.
"""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import glob
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flagperf.bundle.bundle import check_schema, read_json
from flagperf.bundle.liveness import is_held, parent_of
from flagperf.bundle.paths import BUNDLE_FILES, EVENTS, FOLDERS, MANIFEST_FILE, RUN_FILE
from flagperf.bundle.run_record import EXIT_CODES, WITH_RESULTS, Ending, Labels, RunGroup, checked_tag, read_labels
from flagperf.errors import BadInput, BundleFailed, unknown_name
from flagperf.files import exists, is_folder, kind_of
from flagperf.spec.manifest import RowFigure
from flagperf.text import flagperf_command

UNREADABLE = "unreadable"

STATUSES = (*EXIT_CODES, "running", "killed", "unknown", UNREADABLE)
"""Every status that a line may have."""


# --- run.json, decoded in part --------------------------------------------------------------------------------------


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


class RunHead(msgspec.Struct, frozen=True):
    """The few fields that are read of one run among many."""

    id: str
    created: str
    job: _Job
    manifest: _Manifest
    schema: object = None
    metric_versions: dict[str, int] | None = None
    ending: Ending | None = None
    metrics: tuple[_Metric, ...] = ()
    group: RunGroup | None = None
    simulated: bool = False
    redacted: bool = False


def read_head(bundle: Path) -> RunHead:
    """Raise BadInput for a run.json that this version cannot read."""
    try:
        head: RunHead = read_json(bundle / RUN_FILE, RunHead)
    except BadInput:
        content = read_json(bundle / RUN_FILE)
        check_schema(bundle, content.get("schema"), "metric_versions" in content)  # explains more than a missing field
        raise
    check_schema(bundle, head.schema, head.metric_versions is not None)
    return head


# --- a run among many -----------------------------------------------------------------------------------------------


class MainFigure(msgspec.Struct, frozen=True):
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
    headline: tuple[MainFigure, ...] = ()
    """The main results, the most important one first. Empty without results."""
    status: str = UNREADABLE
    host: str = ""
    """The host of an unfinished run's command."""
    simulated: bool = False
    redacted: bool = False
    """It is a copy that `runs redact` made."""
    tags: tuple[str, ...] = ()
    note: str = ""
    problem: str = ""
    """The reason why it, or its tags and note, cannot be read."""


def run_line(path: Path) -> RunLine:
    """Return the line of a bundle. One that cannot be read says why."""
    labels, problem = Labels(), ""
    try:
        labels = read_labels(path)
    except BadInput as error:
        problem = str(error)
    try:
        run = read_head(path)
    except BadInput as error:
        return RunLine(path.name, tags=labels.tags, note=labels.note, problem=str(error))
    status, host = UNREADABLE, ""
    if run.ending is not None:
        status = run.ending.status
    elif not exists(path / MANIFEST_FILE):
        parent = parent_of(path)
        status, host = parent.state, parent.host
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
        headline=_main_figures(run) if status in WITH_RESULTS else (),
        status=status,
        host=host,
        simulated=run.simulated,
        redacted=run.redacted,
        tags=labels.tags,
        note=labels.note,
        problem=problem,
    )


def _main_figures(run: RunHead) -> tuple[MainFigure, ...]:
    from flagperf.metrics.registry import headline_names  # here: only lists need all metrics

    names = headline_names(run.manifest.kind, run.manifest.figures, run.manifest.page.columns)
    found = {metric.name: metric for metric in run.metrics}
    return tuple(
        MainFigure(name, metric.value, metric.unit, metric.marks)
        for name in names
        if (metric := found.get(name)) is not None and metric.value is not None
    )


def list_runs(runs_dir: Path) -> list[RunLine]:
    """Return the lines of all bundles, oldest first."""
    return [run_line(path) for path in bundle_paths(runs_dir)]


def unfinished_runs(runs_dir: Path) -> list[RunLine]:
    """Return the runs without an ending, oldest first. Sealed bundles are not read."""
    paths = [path for path in bundle_paths(runs_dir) if not exists(path / MANIFEST_FILE)]
    return [line for line in map(run_line, paths) if line.status not in EXIT_CODES]


# --- which folder is which run --------------------------------------------------------------------------------------

_RUN_ID = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[\w.+-]+-[0-9]+x[0-9]+-[0-9a-f]{6}(?:-redacted)?", re.ASCII)


class NamedFolder(msgspec.Struct, frozen=True, order=True):
    """A bundle of the runs directory. The order is that of making."""

    time: str
    """When the run was made, as its id has it. Empty where nothing says so."""
    id: str
    """The id of the run; the folder's name where it cannot be read."""
    folder: str


def runs_directory(asked: str | None) -> Path:
    """Return what `--runs-dir` says, else FLAGPERF_RUNS_DIR, else ./runs."""
    return Path(asked or os.environ.get("FLAGPERF_RUNS_DIR") or "runs")


def bundle_paths(runs_dir: Path) -> list[Path]:
    """Return the paths of all bundles, oldest first, readable or not."""
    return [runs_dir / found.folder for found in named_folders(runs_dir)]


def named_folders(runs_dir: Path) -> list[NamedFolder]:
    """Return all bundles, oldest first. run.json is read only of folders that are not named like a run."""
    try:
        entries = os.listdir(runs_dir)  # noqa: PTH208  only names are needed
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot read the runs directory {runs_dir}: {error.strerror}") from None
    found = []
    for folder in entries:
        if folder.startswith(".") or not os.path.lexists(runs_dir / folder / RUN_FILE):
            continue
        run_id, time = folder, ""
        by_id = _RUN_ID.fullmatch(folder)
        if by_id is None:
            try:
                head = read_head(runs_dir / folder)
            except BadInput:  # stays without a time: it is the oldest
                pass
            else:
                run_id, by_id = head.id, _RUN_ID.fullmatch(head.id)
                with contextlib.suppress(ValueError, OverflowError):
                    moment = datetime.datetime.fromisoformat(head.created)
                    time = moment.astimezone(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        found.append(NamedFolder(by_id[1] if by_id else time, run_id, folder))
    return sorted(found)


# --- words of the command line --------------------------------------------------------------------------------------


class Latest(msgspec.Struct, frozen=True):
    path: Path
    newer: RunLine | None = None
    """The newest run, if that has not finished."""


Tell = Callable[[Latest], object]
"""Called with the run that `latest` stands for."""


def find_latest(runs_dir: Path) -> Latest:
    """Return the latest run that has ended. Raise BadInput if there is none."""
    newest: RunLine | None = None
    for path in reversed(bundle_paths(runs_dir)):
        line = run_line(path)
        if line.status in EXIT_CODES:
            return Latest(path, newest)
        newest = newest or line
    if newest is None:
        raise _not_found("latest", runs_dir, [])
    raise BadInput(f"no run in {runs_dir} has finished; the newest, {newest.id}, is {newest.status}: name it to use it")


def find_run(word: str, runs_dir: Path, tell: Tell = lambda _latest: None) -> Path:
    """Resolve RUN: a path, the id of a run, the name of its folder, a unique prefix of one of these, or `latest`."""
    as_path = Path(word)
    if os.path.lexists(as_path / RUN_FILE):
        return as_path
    if word == "latest":
        latest = find_latest(runs_dir)
        tell(latest)
        return latest.path
    known = named_folders(runs_dir)
    matches = [each for each in known if each.folder == word] or [each for each in known if each.id == word]
    matches = matches or [each for each in known if each.id.startswith(word) or each.folder.startswith(word)]
    if not matches:
        raise _not_found(word, runs_dir, sorted({name for each in known for name in (each.id, each.folder)}))
    if len(matches) == 1:
        return runs_dir / matches[0].folder
    folders = [each.folder for each in matches]
    some = ", ".join([*folders[:4], *(["..."] if len(matches) > 4 else [])])
    more = "name one of the folders" if len({each.id for each in matches}) == 1 else "give more of the id"
    raise BadInput(f"{word!r} is ambiguous: {len(matches)} runs match in {runs_dir} ({some}); {more}")


def find_bundle(word: str, runs_dir: Path, tell: Tell = lambda _latest: None) -> Path:
    """Resolve RUN like find_run, but also find a damaged bundle without run.json."""
    for folder in (Path(word), runs_dir / word):
        was_bundle = exists(folder / MANIFEST_FILE) or is_folder(folder / EVENTS)
        if was_bundle and not os.path.lexists(folder / RUN_FILE):
            return folder
    return find_run(word, runs_dir, tell)


def _not_found(word: str, runs_dir: Path, names: list[str]) -> BadInput:
    folder = next((folder for folder in (Path(word), runs_dir / word) if is_folder(folder)), None)
    if folder is not None:
        return BadInput(f"{folder} has no {RUN_FILE}: it is not a bundle, or it is damaged")
    if names:
        return unknown_name("run", word, names, f"(in {runs_dir})")
    makes = f"create one with `{flagperf_command('run')} CASE`"
    return BadInput(f"there are no runs in {runs_dir}; {makes}, or choose another folder with --runs-dir")


GROUP_PREFIX, TAG_PREFIX = "group-", "tag:"
"""The beginning of every group's id, and of a word that names the runs with a tag."""


def find_runs(word: str, runs_dir: Path, tell: Tell = lambda _latest: None) -> list[Path]:
    """Resolve a word that may stand for several runs: RUN, RUN,RUN, a pattern, tag:WORD, a group (`group-1a2b3c4d`), or
    an arm of a group (`group-1a2b3c4d/B`)."""
    if word.startswith(TAG_PREFIX):
        tag = word.removeprefix(TAG_PREFIX)
        found = [path for path in bundle_paths(runs_dir) if checked_tag(tag) in read_labels(path).tags]
        if not found:
            raise BadInput(f"no run in {runs_dir} has the tag {tag!r}; see --runs-dir")
        return found
    if word.startswith(GROUP_PREFIX):
        name, slash, arm = word.partition("/")
        group, arms = find_group(name, runs_dir)
        if slash and arm not in arms:
            raise unknown_name(f"arm of {group}", arm, [each for each in arms if each])
        return arms[arm] if slash else [path for paths in arms.values() for path in paths]
    if os.path.lexists(word):
        return [find_run(word, runs_dir, tell)]
    if any(letter in word for letter in "*?["):
        return matching_runs(word, runs_dir)
    return [find_run(each.strip(), runs_dir, tell) for each in word.split(",")]


def find_group(word: str, runs_dir: Path) -> tuple[str, dict[str, list[Path]]]:
    """Resolve `group-1a2b3c4d`, or the beginning of it, to its id, and its runs by arm in the order of running. The arm
    of runs that did not take turns is empty."""
    known: dict[str, list[tuple[RunGroup, Path]]] = {}
    for path in bundle_paths(runs_dir):
        try:
            group = read_head(path).group
        except BadInput:  # nobody knows whether a damaged bundle belongs to a group
            continue
        if group is not None:
            known.setdefault(group.id, []).append((group, path))
    matches = [name for name in known if name.startswith(word)]
    if not matches:
        raise unknown_name("group", word, known, f"(in {runs_dir}; `run --repeat` makes one)")
    if len(matches) > 1:
        raise BadInput(f"{word!r} is ambiguous: {', '.join(matches[:4])}; give more of the id")
    arms: dict[str, list[Path]] = {}
    for group, path in sorted(known[matches[0]], key=lambda member: member[0].index):
        arms.setdefault(group.arm, []).append(path)
    return matches[0], arms


def matching_runs(pattern: str, runs_dir: Path) -> list[Path]:
    """Match ids and folders of the runs directory, or paths if the pattern has a slash."""
    if os.sep in pattern:
        found = [Path(path) for path in sorted(glob.glob(pattern))]  # noqa: PTH207  the pattern may be absolute
        found = [path for path in found if os.path.lexists(path / RUN_FILE)]
    else:
        known = named_folders(runs_dir)
        found = [runs_dir / each.folder for each in known if fnmatch.filter((each.id, each.folder), pattern)]
    if not found:
        raise BadInput(f"no run matches {pattern!r} in {runs_dir}; see --runs-dir, and put patterns into quotes")
    return found


# --- removing -------------------------------------------------------------------------------------------------------


class Removable(msgspec.Struct, frozen=True):
    """A bundle that may be removed."""

    path: Path
    line: RunLine
    num_bytes: int


def removable(bundle: Path, *, force: bool) -> Removable:
    """Raise BadInput for a folder that is not a bundle, that has anything else in it, or whose run is running. With
    `force`, a run that cannot be seen from here counts as ended."""
    path = Path(os.path.abspath(bundle))  # noqa: PTH100  `resolve` would follow the link that is refused below
    if path.is_symlink() or not path.is_dir():
        raise BadInput(f"{path} is {kind_of(path)}, not the folder of a run; nothing was removed")
    known = {str(name) for name in (*BUNDLE_FILES, *FOLDERS)}
    half_written = tuple(f".{name}." for name in known)  # `.run.json.x7f2`, which a killed command leaves
    for name in sorted(os.listdir(path)):  # noqa: PTH208  only names are needed
        if name not in known and not name.startswith(half_written):
            raise BadInput(f"{path} has {name!r}, which no run writes; move it away first; nothing was removed")
    if is_held(path):
        raise BadInput(f"{path.name} is running; end it first; nothing was removed")
    if not (path / MANIFEST_FILE).exists():
        parent = parent_of(path)
        if parent.state == "running":
            raise BadInput(f"{path.name} is running on {parent.host}; end it first; nothing was removed")
        if parent.state == "unknown" and not force:
            where = f"its command was started on {parent.host}" if parent.host else "its command left no trace"
            raise BadInput(
                f"{path.name} has no ending, and it cannot be seen from here whether it is running ({where}); look "
                "there, and give --force if it is not; nothing was removed"
            )
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return Removable(path, run_line(path), sum(file.lstat().st_size for file in files))


def remove(bundles: Sequence[Removable]) -> None:
    """Rename each bundle before it is removed, so that no half of one is ever listed. Links are never followed."""
    for bundle in bundles:
        aside = bundle.path.with_name(f".removing-{bundle.path.name}")
        try:
            bundle.path.rename(aside)
            shutil.rmtree(aside)
        except OSError as error:
            raise BundleFailed(f"cannot remove {bundle.path}: {error.strerror} ({error.filename})") from None
