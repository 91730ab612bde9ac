"""The folder of a site: what in it is ours, and for which state of a run each page was written.

    site.json           what this folder is, and the runs whose files are ours
    index.html          the board
    runs/<id>.html      the page of a run
    runs/<id>.json      its row on the board, and the key of what both were made from

A page is written before its row, all of them before index.html, and every file is replaced at once: whatever ends the
command, the site works, and the next call goes on where this one ended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.files import exists, is_file, is_folder, making_folder, read_regular, write_atomically
from flagperf_publish.site.board import BoardRow

SCHEMA = 1
STATE, INDEX, RUNS = "site.json", "index.html", "runs"
MAX_BYTES = 64 << 20

_SAFE_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}")


class State(msgspec.Struct, frozen=True):
    flagperf_site: int
    """The version of this layout."""
    flagperf: str
    """The version that wrote it last."""
    runs: tuple[str, ...] = ()
    """Ids: their files, and no others, may be removed."""


class Rendered(msgspec.Struct, frozen=True):
    key: str
    row: BoardRow


class SiteFolder:
    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.state = state

    @property
    def index(self) -> Path:
        return self.path / INDEX

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Make the folder if it is absent, and remove a new one into which nothing was put."""
        with contextlib.ExitStack() as made:
            try:
                made.enter_context(making_folder(self.path))
            except OSError as error:
                raise BadInput(f"cannot make the folder {self.path}: {error.strerror}; choose another") from None
            yield

    def rendered(self, run_id: str, key: str) -> BoardRow | None:
        """Return the row of a run whose page is there and was made from just this."""
        try:
            found = msgspec.json.decode(read_regular(self._file(run_id, "json"), MAX_BYTES), type=Rendered)
        except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError):
            return None  # it is written again
        return found.row if found.key == key and is_file(self._file(run_id, "html")) else None

    def claim(self, run_ids: Iterable[str], version: str) -> None:
        """Record that these are ours, before the first of their files is written."""
        try:
            self._write_state(State(SCHEMA, version, tuple(sorted({*self.state.runs, *run_ids}))))
            (self.path / RUNS).mkdir(exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write the site {self.path}: {error.strerror}; choose another folder") from None

    def write_run(self, page: str, rendered: Rendered) -> None:
        with self._writing():
            write_atomically(self._file(rendered.row.name, "html"), page.encode())
            write_atomically(self._file(rendered.row.name, "json"), msgspec.json.encode(rendered) + b"\n")

    def write_index(self, page: str) -> None:
        with self._writing():
            write_atomically(self.index, page.encode())

    def keep_only(self, run_ids: Iterable[str], version: str) -> list[str]:
        """Remove the files of all other runs. Return their ids."""
        kept = tuple(sorted(run_ids))
        dropped = [each for each in self.state.runs if each not in set(kept)]
        with self._writing():
            for run_id in dropped:
                for ending in ("html", "json"):
                    self._file(run_id, ending).unlink(missing_ok=True)
            self._write_state(State(SCHEMA, version, kept))
        return dropped

    def _file(self, run_id: str, ending: str) -> Path:
        return self.path / RUNS / f"{run_id}.{ending}"

    def _write_state(self, state: State) -> None:
        write_atomically(self.path / STATE, msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
        self.state = state

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = "what was written before still works; free disk space, and call it again"
            raise BundleFailed(f"cannot write the site {self.path}: {error.strerror}; {advice}") from None


def open_site(path: Path) -> SiteFolder:
    """Raise BadInput for anything but a site, an empty folder, or a path where nothing is."""
    if not exists(path):
        return SiteFolder(path, State(SCHEMA, ""))
    if not is_folder(path):
        raise BadInput(f"{path} is not a folder; a site is one: choose another name")
    try:
        if not any(path.iterdir()):
            return SiteFolder(path, State(SCHEMA, ""))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; choose another folder") from None
    file = path / STATE
    if not is_file(file):
        raise BadInput(f"{path} has files and no {STATE}: it is not a site of flagperf; choose a new or empty folder")
    try:
        state = msgspec.json.decode(read_regular(file, MAX_BYTES), type=State)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} is not that of a site of flagperf: {error}; choose another folder") from None
    if state.flagperf_site > SCHEMA:
        raise BadInput(f"{file} was written by flagperf {state.flagperf}, which is newer; use that, or another folder")
    strange = [each for each in state.runs if not is_safe_id(each)]
    if strange:
        raise BadInput(f"{file} names {strange[0]!r}, which is not a run; choose another folder")
    return SiteFolder(path, state)


def is_safe_id(run_id: str) -> bool:
    """Return whether it can be the name of a file, in this folder and in no other."""
    return _SAFE_ID.fullmatch(run_id) is not None
