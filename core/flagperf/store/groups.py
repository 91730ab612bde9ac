"""Several runs that belong together: those of one command (`run --repeat`), those with a tag, those of a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.store.bundle import read_json
from flagperf.store.labels import checked_tag, read_labels
from flagperf.store.listing import Latest, bundle_paths, find_run, named_folders
from flagperf.store.paths import RUN_FILE
from flagperf.store.run import RunGroup

PREFIX, TAG = "group-", "tag:"
"""Of the id of every group; of a word that names the runs with a tag."""


class _Run(msgspec.Struct, frozen=True):
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
            group = read_json(path / RUN_FILE, _Run).group
        except BadInput:  # of a damaged bundle nobody knows whether it belongs to one
            continue
        if group is not None:
            found.setdefault(group.id, []).append((group, path))
    return found
