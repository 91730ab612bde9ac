"""Removing bundles, and nothing else: a folder with anything that no run writes is left as it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.files import kind_of
from flagperf.store.alive import is_held, parent_of
from flagperf.store.paths import BUNDLE_FILES, FOLDERS, MANIFEST_FILE
from flagperf.store.run_line import RunLine, run_line

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
