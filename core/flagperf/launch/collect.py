"""Bring the nodes' parts of a bundle here, over the channels of their agents."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from flagperf.errors import NodeFailed
from flagperf.fleet import Fleet
from flagperf.spec import FetchRequest
from flagperf.store.paths import FOLDERS

FETCH_SECONDS = 600.0

_NAME = re.compile(rf"({'|'.join(map(str, FOLDERS))})/[A-Za-z0-9][A-Za-z0-9._-]*")


def collect_parts(fleet: Fleet, indexes: Iterable[int], run_id: str, bundle: Path) -> dict[int, str]:
    """Returns why the parts of some nodes are missing. Raises OSError where the bundle cannot be written."""
    requests = {index: FetchRequest(run_id, index) for index in indexes}
    archives: dict[int, IO[bytes]] = {index: tempfile.TemporaryFile(dir=bundle) for index in requests}  # noqa: SIM115
    try:
        answers = fleet.ask_all(
            "fetch", requests, type(None), FETCH_SECONDS, take=lambda index, content: _keep(archives[index], content)
        )
        missing = {index: str(error) for index, error in answers.failed.items()}
        for index in answers.given:
            try:
                unpack(archives[index], bundle)
            except (NodeFailed, tarfile.TarError, EOFError, ValueError, OverflowError) as error:
                missing[index] = f"what node {index} sent cannot be used: {error}"
        return missing
    finally:
        for archive in archives.values():
            archive.close()


def _keep(archive: IO[bytes], content: bytes) -> None:
    archive.write(content)


def unpack(archive: IO[bytes], bundle: Path) -> None:
    """Only regular files that a node may write, and none that is there already: the archive is another machine's."""
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:") as members:
        for member in members:
            target = bundle / member.name
            if not member.isreg() or member.issparse() or not _NAME.fullmatch(member.name):
                raise NodeFailed(f"{member.name!r} has no place in a bundle")
            if target.exists():
                raise NodeFailed(f"{member.name!r} is there already")
            content = members.extractfile(member)
            assert content is not None
            with target.open("xb") as file:
                while part := content.read(1 << 20):
                    file.write(part)
