"""Check --data-dir: which of the files that a case needs are there, and whether the case accepts them."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf.files import is_file, is_folder, sha256_of
from flagperf.fleet.reach import check_nodes, reach_nodes
from flagperf.plan.settings import case_file, fit_layout, least_devices, published_profile, resolve_values
from flagperf.plugins.installed import Plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.manifest import Manifest, NeededData, with_values
from flagperf.spec.protocol import CheckAnswer, CheckRequest
from flagperf.spec.values import flatten

MAX_HASHED_BYTES = 1 << 30
"""Of a file that the case did not come to. Those that it accepts are hashed whatever their size: runs record that."""

_CHUNK_BYTES = 1 << 20


class FoundFile(msgspec.Struct, frozen=True):
    path: str
    """Relative to the folder."""
    num_bytes: int
    rows: int | None = None
    """Lines, records of CSV or entries of a JSON list. None for a file without rows."""
    sha256: str | None = None
    """None for a large file that the case did not come to."""


class NeededFile(msgspec.Struct, frozen=True):
    name: str
    """As it is looked for: `a or b`, and `*`."""
    state: str
    """found, missing, not a file (a folder, a FIFO, a broken link), or not needed: the case accepts the folder without
    it."""
    files: tuple[FoundFile, ...] = ()
    published_rows: int | None = None

    @property
    def is_missing(self) -> bool:
        return self.state in ("missing", "not a file")


class DataItem(msgspec.Struct, frozen=True):
    data: NeededData
    files: tuple[NeededFile, ...]


class DataCheck(msgspec.Struct, frozen=True):
    case: str
    profile: str
    folder: str
    items: tuple[DataItem, ...]
    problem: str = ""
    """Why the case does not accept the folder, in its own words: the first thing that it met."""

    @property
    def missing(self) -> list[str]:
        return [file.name for item in self.items for file in item.files if file.is_missing]


def check_data(spec: RunSpec, plugins: Plugins) -> DataCheck:
    """Check the folder on this machine, for the published profile unless another was asked for."""
    folder = Path(spec.data_dir or "")
    if not is_folder(folder):
        raise BadInput(f"{folder} is not a folder; give the one that --data-dir would name")
    manifest = plugins.case(spec.case).manifest
    profile = spec.profile or published_profile(manifest)
    spec = msgspec.structs.replace(spec, profile=profile, data_dir=str(folder.absolute()))
    values = case_values(spec, manifest, plugins)
    answer = CheckAnswer()
    if manifest.check_files is not None:  # in a process of its own, as before a run
        with reach_nodes(RunSpec(spec.case, config=spec.config), plugins) as fleet:
            answer = check_nodes(fleet, CheckRequest(manifest.check_files, spec.data_dir, values))
    flat, read = dict(flatten(values)), {file.path: file for file in answer.files}
    items: list[DataItem] = []
    for data in manifest.data:
        if data.is_needed(flat):
            looked_for = (_needed(names, data, folder, flat, read, answer) for names in data.choices)
            files = {file.files or file.name: file for file in looked_for}  # one file may stand for several
            items.append(DataItem(data, tuple(files.values())))
    listed = {found.path for item in items for file in item.files for found in file.files}
    others = [file for path, file in read.items() if path not in listed]
    if others:
        found = tuple(NeededFile(file.path, "found", (_found(folder, file.path, file, False),)) for file in others)
        items.append(DataItem(NeededData("other files that the case reads", ()), found))
    return DataCheck(manifest.name, profile, str(folder), tuple(items), answer.problem)


def case_values(spec: RunSpec, manifest: Manifest, plugins: Plugins) -> dict[str, Any]:
    """Return the values of a run on the fewest devices that the case can be run on."""
    spec = msgspec.structs.replace(spec, devices=manifest.min_devices)
    config = resolve_values(spec, manifest, case_file(spec, plugins), tuning=None)
    spec = msgspec.structs.replace(spec, devices=max(manifest.min_devices, least_devices(config.values)))
    return fit_layout(config, spec).values


def _needed(
    names: tuple[str, ...],
    data: NeededData,
    folder: Path,
    values: Mapping[str, Any],
    read: Mapping[str, DataFile],
    answer: CheckAnswer,
) -> NeededFile:
    patterns = [with_values(name, values) for name in names]
    title, published = " or ".join(patterns), next((data.rows[name] for name in names if name in data.rows), None)
    for pattern in patterns:
        paths = [pattern] if is_file(folder / pattern) else []
        if "*" in pattern:
            paths = sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern) if path.is_file())
        used = [path for path in paths if path in read] or paths
        if used:
            found = tuple(_found(folder, path, read.get(path), data.header) for path in used)
            return NeededFile(title, "found", found, published)
    state = "not a file" if any(os.path.lexists(folder / pattern) for pattern in patterns) else "missing"
    return NeededFile(title, state if answer.problem else "not needed", (), published)


def _found(folder: Path, name: str, read: DataFile | None, header: bool) -> FoundFile:
    path = folder / name
    try:
        size = path.stat().st_size
        sha256 = read.sha256 if read else sha256_of(path) if size <= MAX_HASHED_BYTES else None
        return FoundFile(name, size, _rows(path, header), sha256)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _rows(path: Path, header: bool) -> int | None:
    """Return None for what has no rows, or cannot be read as what its name says: the case says that better."""
    try:
        if path.suffix in (".tsv", ".jsonl", ".txt"):
            count, last = 0, b"\n"
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    count, last = count + chunk.count(b"\n"), chunk[-1:]
            return count + (last != b"\n") - header  # a last line without its newline counts
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as text:
                return sum(1 for _ in csv.reader(text)) - header
        if path.suffix == ".json" and path.stat().st_size <= MAX_HASHED_BYTES:
            content = msgspec.json.decode(path.read_bytes())
            return len(content) if isinstance(content, list) else None
    except (ValueError, csv.Error, RecursionError):  # msgspec's and Unicode's errors are ValueErrors
        return None
    return None
