"""What another machine sends as its files of a bundle is not trusted, and what arrives is what it had."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flagperf.agent.node_run import PartsSender
from flagperf.bundle.paths import FOLDERS
from flagperf.errors import NodeFailed
from flagperf.fleet.supervision import BundleParts
from flagperf.spec.protocol import FilePart, FilesComplete
from run_builders import make_run


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / "bundle" / folder).mkdir(parents=True)
        (tmp_path / "node" / folder).mkdir(parents=True)
    return tmp_path / "bundle"


@pytest.fixture
def parts(bundle: Path) -> BundleParts:
    """Of a job of two nodes with a device each."""
    job = make_run("a").job
    node = msgspec.structs.replace(job.nodes[0], devices=job.nodes[0].devices[:1])
    nodes = tuple(msgspec.structs.replace(node, index=index) for index in range(2))
    return BundleParts(msgspec.structs.replace(job, nodes=nodes), bundle)


FOREIGN = (
    "run.json events/parent.jsonl events/rank-00001.jsonl samples/node-001.jsonl logs/agent-000.log "
    "events/operators-00000.json logs/../run.json ../outside /tmp/flagperf-outside"
)
"""Files of the command and of the other node, operators that nobody asked for, and places outside."""


@pytest.mark.parametrize("path", ["", *FOREIGN.split()])
def test_a_node_writes_its_own_files_and_nothing_else(parts: BundleParts, bundle: Path, path: str) -> None:
    before = set(bundle.parent.rglob("*"))
    with pytest.raises(NodeFailed, match="which is not a file of its own"):
        parts.take(0, FilePart(path, 0, b"content"))
    assert set(bundle.parent.rglob("*")) == before


def test_a_gap_and_a_file_that_is_there_already_are_refused(parts: BundleParts, bundle: Path) -> None:
    parts.take(0, FilePart("logs/rank-00000.log", 0, b"abc"))
    for offset in (4, -1):
        with pytest.raises(NodeFailed, match="3 have arrived"):
            parts.take(0, FilePart("logs/rank-00000.log", offset, b"x"))
    assert (bundle / "logs/rank-00000.log").read_bytes() == b"abc"


def test_growing_cut_and_large_files_arrive_as_they_are(parts: BundleParts, bundle: Path) -> None:
    node = bundle.parent / "node"
    sender = PartsSender(node)
    events, samples, log = (
        node / name for name in ("events/rank-00000.jsonl", "samples/node-000.jsonl", "logs/node-000.log")
    )
    events.write_bytes(b"one\n")
    samples.write_bytes(b"")
    samples.with_name("link").symlink_to(events)

    def send() -> None:
        for part in sender.new_parts():
            parts.take(0, msgspec.json.decode(msgspec.json.encode(part), type=FilePart))

    send()
    with events.open("ab") as file:
        file.write(b"two\n{torn")
    log.write_bytes(bytes(range(256)) * 4000)
    send()
    events.write_bytes(b"one\ntwo\n")
    send()
    send()
    parts.finish(0, sender.complete())
    assert parts.complete == {0}
    for path in (events, samples, log):
        assert (bundle / path.relative_to(node)).read_bytes() == path.read_bytes()
    assert not (bundle / "samples" / "link").exists()


@pytest.mark.parametrize(
    "digests", [{"logs/rank-00000.log": "0" * 64}, {"logs/node-000.log": "0" * 64}, {"run.json": ""}]
)
def test_what_did_not_arrive_as_it_was_is_named(parts: BundleParts, digests: dict[str, str]) -> None:
    parts.take(0, FilePart("logs/rank-00000.log", 0, b"abc"))
    with pytest.raises(NodeFailed, match=f"{next(iter(digests))} did not arrive as it is on the node"):
        parts.finish(0, FilesComplete(digests))
    assert not parts.complete


def test_recorded_operators_are_a_file_of_a_node_that_was_to_record(bundle: Path) -> None:
    job = msgspec.structs.replace(make_run("a").job, record_steps=3)
    BundleParts(job, bundle).take(0, FilePart("events/operators-00000.json", 0, b"{}"))
    assert (bundle / "events/operators-00000.json").read_bytes() == b"{}"
