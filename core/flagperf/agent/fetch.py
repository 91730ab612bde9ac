"""The verb `fetch`: this node's parts of a bundle. Takes a FetchRequest, prints a tar archive of them."""

from __future__ import annotations

import tarfile
from typing import IO

import msgspec

from flagperf.agent.watchdog import output_folder
from flagperf.spec import FetchRequest
from flagperf.store.paths import FOLDERS


def main(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=FetchRequest)
    folder = output_folder(request.run_id, request.node_index)
    with tarfile.open(fileobj=stdout, mode="w|") as archive:
        for part in FOLDERS:
            for path in sorted((folder / part).glob("*")):
                if path.is_file() and not path.is_symlink():
                    archive.add(path, arcname=str(path.relative_to(folder)))
    return 0
