"""Reference results that were imported from published pages: one file each, in `references/` of the runs directory.

case = "glm"
page = "old/README.md"
sha256 = "..."             # of the page
[[references]]             # as in a case
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.bundle.run_record import RecordedRun
from flagperf.errors import BadInput
from flagperf.files import cannot_write, is_folder, making_folder, write_atomically
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import PublishedResult
from flagperf.spec.toml_files import read_toml

FOLDER = "references"


class ImportedPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: str
    page: str
    sha256: str
    references: tuple[PublishedResult, ...]

    @property
    def rows(self) -> list[PublishedResult]:
        """Return the results without their sources: the same page may have another path."""
        return [msgspec.structs.replace(each, source="") for each in self.references]


def imported_path(runs_dir: Path, name: str) -> Path:
    return runs_dir / FOLDER / f"{name}.toml"


def read_imported(path: Path) -> ImportedPage:
    """Read a file of imported results. Raise BadInput for a file of another kind."""
    try:
        return msgspec.convert(read_toml(path), ImportedPage)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path} has no imported results: {error}; import the page again, or remove the file") from None


def imported_pages(runs_dir: Path) -> list[ImportedPage]:
    folder = runs_dir / FOLDER
    return [read_imported(path) for path in sorted(folder.glob("*.toml"))] if is_folder(folder) else []


def imported_references(case: str, runs_dir: Path) -> tuple[PublishedResult, ...]:
    """Return the imported results of a case, in the order of the files."""
    return tuple(each for page in imported_pages(runs_dir) if page.case == case for each in page.references)


def references_of(manifest: Manifest, runs_dir: Path) -> tuple[PublishedResult, ...]:
    """Return the results that the case brings, then imported ones that it lacks."""
    own = {identity_of(each) for each in manifest.references}
    imported = {identity_of(each): each for each in reversed(imported_references(manifest.name, runs_dir))}
    added = [each for identity, each in reversed(imported.items()) if identity not in own]
    return (*manifest.references, *added)


def with_imported(recorded: RecordedRun, runs_dir: Path) -> RecordedRun:
    """Return the run with the imported results added to its case."""
    manifest = recorded.run.manifest
    known = msgspec.structs.replace(manifest, references=references_of(manifest, runs_dir))
    return msgspec.structs.replace(recorded, run=msgspec.structs.replace(recorded.run, manifest=known))


def identity_of(result: PublishedResult) -> tuple[Any, ...]:
    """Return the key of a result: two of the same cards with the same values are one."""
    shape = (result.vendor, result.nodes, result.devices_per_node, result.precision)
    values = tuple(sorted((name, float(f"{value:.6g}")) for name, value in result.values.items()))
    return (*shape, values) if values else (*shape, result.device, result.parallel, result.overrides)


def write_imported(path: Path, page: ImportedPage) -> None:
    lines = [f"{name} = {_toml(getattr(page, name))}" for name in ("case", "page", "sha256")]
    for reference in page.references:
        values = msgspec.structs.asdict(reference)
        lines += ["", "[[references]]"]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if value not in ("", {})]
    try:
        with making_folder(path.parent):
            write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise cannot_write(f"cannot write {path}: {error.strerror}; choose another --runs-dir", error) from None


def _toml(value: Any) -> str:
    """Write a value as TOML. Texts have no control characters, so JSON's strings are TOML too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def beside_imported(recorded: Sequence[RecordedRun], directory: Path, published: bool | None) -> list[RecordedRun]:
    """Return the runs with imported results. With --no-published, no file of them is opened."""
    if published is False:
        return list(recorded)
    with _advised():
        return [with_imported(each, directory) for each in recorded]


def check_imported(directory: Path, published: bool | None) -> None:
    """Raise BadInput for a broken file before a run, not after it."""
    if published is not False:
        with _advised():
            imported_pages(directory)


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{error}; --no-published leaves out imported results") from None
