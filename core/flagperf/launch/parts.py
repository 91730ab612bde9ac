"""BundleParts: what the nodes send of their files goes into the bundle as it arrives. Other machines are not trusted: a
node can write its own files of a bundle and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flagperf.errors import NodeFailed
from flagperf.spec import FilePart, FilesComplete, Job
from flagperf.store.bundle import writing
from flagperf.store.paths import node_log, node_samples, rank_events, rank_log, rank_operators


class BundleParts:
    def __init__(self, job: Job, bundle: Path) -> None:
        self._bundle = bundle
        self._own = _own_files(job)
        self._sizes: dict[str, int] = {}
        self.complete: set[int] = set()
        """Nodes all of whose files are here."""

    def take(self, index: int, part: FilePart) -> None:
        """Raises NodeFailed for what the node may not send, BundleFailed where it cannot be written."""
        if part.path not in self._own[index]:
            raise NodeFailed(f"it sent {part.path!r}, which is no file of its own")
        size = self._sizes.get(part.path, 0)
        if not 0 <= part.offset <= size:
            raise NodeFailed(f"it sent {part.path} from byte {part.offset} on, but {size} have arrived")
        with (
            writing(self._bundle),
            (self._bundle / part.path).open("r+b" if part.path in self._sizes else "xb") as file,
        ):
            file.truncate(part.offset)
            file.seek(part.offset)
            file.write(part.content)
        self._sizes[part.path] = part.offset + len(part.content)

    def finish(self, index: int, files: FilesComplete) -> None:
        """Raises NodeFailed where what has arrived is not what the node has."""
        for path, digest in files.digests.items():
            if path not in self._own[index] or path not in self._sizes or self._digest(path) != digest:
                raise NodeFailed(f"{path} did not arrive as it is on the node")
        self.complete.add(index)

    def _digest(self, path: str) -> str:
        digest = hashlib.sha256()
        with writing(self._bundle), (self._bundle / path).open("rb") as file:
            while content := file.read(1 << 20):
                digest.update(content)
        return digest.hexdigest()


def _own_files(job: Job) -> dict[int, set[str]]:
    """By node. The agent's log is written here."""
    found, first = {}, 0
    for node in job.nodes:
        ranks = range(first, first + len(node.devices))
        first += len(node.devices)
        paths = [path for rank in ranks for path in (rank_events(rank), rank_log(rank))]
        if job.record_steps:
            paths += map(rank_operators, ranks)
        paths += [node_samples(node.index), node_log("launcher", node.index), node_log("probe", node.index)]
        found[node.index] = set(map(str, paths))
    return found
