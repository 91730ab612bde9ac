"""Imported results beside runs. With --no-published, no file of them is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.errors import BadInput

if TYPE_CHECKING:
    from flagperf.store.run import RecordedRun


def beside_imported(recorded: Sequence[RecordedRun], directory: Path, no_published: bool) -> list[RecordedRun]:
    from flagperf.store.imported import with_imported

    if no_published:
        return list(recorded)
    with _advised():
        return [with_imported(each, directory) for each in recorded]


def check_imported(directory: Path, no_published: bool) -> None:
    """A file that is broken is said before a run, not after it."""
    from flagperf.store.imported import imported_pages

    if not no_published:
        with _advised():
            imported_pages(directory)


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{error}; --no-published leaves out imported results") from None
