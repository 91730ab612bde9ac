"""What another machine sends as its parts of a bundle is not trusted."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flagperf.agent import fetch
from flagperf.agent.watchdog import output_folder
from flagperf.errors import NodeFailed
from flagperf.launch.collect import unpack
from flagperf.spec import FetchRequest
from flagperf.store.paths import FOLDERS


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / "outer" / "bundle" / folder).mkdir(parents=True)
    (tmp_path / "outer" / "bundle" / "run.json").write_text("{}")
    return tmp_path / "outer" / "bundle"


def archive(*members: tarfile.TarInfo, content: bytes = b"content") -> io.BytesIO:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as writing:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            writing.addfile(member, io.BytesIO(content))
    return written


def file(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_files_of_a_node_are_written(bundle: Path) -> None:
    unpack(archive(file("events/rank-00000.jsonl"), file("logs/node-000.log"), file("samples/node-000.jsonl")), bundle)
    assert {path for path in everything(bundle) if (bundle / path).is_file()} == {
        "events/rank-00000.jsonl", "logs/node-000.log", "samples/node-000.jsonl", "run.json"
    }  # fmt: skip
    assert (bundle / "logs" / "node-000.log").read_bytes() == b"content"


@pytest.mark.parametrize(
    "name",
    [
        "../escaped", "logs/../../escaped", "logs/../escaped", "/tmp/flagperf-escaped", "//logs/x", "run.json",
        "./run.json", "logs", "logs/", "logs/a/b", "logs/.hidden", "logs/..", "logs/-x", "logs/a b", "logs/a\nb",
        "logs/\u00e9", "other/x", "LOGS/x", "logs\\x", "MANIFEST", "", "xlogs/a", "logs/a\n",
    ],
)  # fmt: skip
def test_a_name_that_has_no_place_is_refused_and_nothing_is_written(bundle: Path, name: str) -> None:
    before = everything(bundle.parents[1])
    with pytest.raises(NodeFailed, match="has no place in a bundle"):
        unpack(archive(file(name)), bundle)
    assert everything(bundle.parents[1]) == before
    assert (bundle / "run.json").read_text() == "{}"
    assert not Path("/tmp/flagperf-escaped").exists()


@pytest.mark.parametrize(
    "member",
    [
        special("logs/x", tarfile.SYMTYPE, "/etc/passwd"),
        special("logs/x", tarfile.SYMTYPE, "../run.json"),
        special("logs/x", tarfile.LNKTYPE, "run.json"),
        special("logs/x", tarfile.CHRTYPE),
        special("logs/x", tarfile.BLKTYPE),
        special("logs/x", tarfile.FIFOTYPE),
        special("logs/x", tarfile.DIRTYPE),
    ],
    ids=["symlink", "symlink inside", "hard link", "character device", "block device", "fifo", "folder"],
)
def test_only_regular_files_are_taken(bundle: Path, member: tarfile.TarInfo) -> None:
    before = everything(bundle.parents[1])
    with pytest.raises(NodeFailed, match="'logs/x' has no place in a bundle"):
        unpack(archive(member), bundle)
    assert everything(bundle.parents[1]) == before


def test_a_file_of_holes_is_refused(bundle: Path) -> None:
    """A few bytes of an archive would fill the disk."""
    member = file("logs/x")
    member.pax_headers = {"GNU.sparse.size": str(1 << 45), "GNU.sparse.map": "0,1"}
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as writing:
        member.size = 1
        writing.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(NodeFailed, match="has no place"):
        unpack(written, bundle)
    assert not (bundle / "logs" / "x").exists()


def test_a_name_that_is_there_is_not_written_over(bundle: Path) -> None:
    (bundle / "logs" / "own").write_text("mine")
    with pytest.raises(NodeFailed, match="'logs/own' is there already"):
        unpack(archive(file("logs/own")), bundle)
    assert (bundle / "logs" / "own").read_text() == "mine"
    with pytest.raises(NodeFailed, match="'logs/twice' is there already"):
        unpack(archive(file("logs/twice"), file("logs/twice")), bundle)


@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: b"no archive at all" * 100, lambda content: content[:600]],
    ids=["nothing", "something else", "cut short"],
)
def test_what_is_no_archive_is_an_error_of_it(bundle: Path, damage: Callable[[bytes], bytes]) -> None:
    content = archive(file("logs/x"), content=b"long" * 1000).getvalue()
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(damage(content)), bundle)


def test_what_a_node_packs_is_what_is_unpacked(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without links, and without what is not part of a bundle."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = output_folder("r", 1)
    for folder in FOLDERS:
        (own / folder).mkdir(parents=True)
    (own / "events" / "rank-00001.jsonl").write_bytes(b"\x00\xff" * 100_000)
    (own / "logs" / "link").symlink_to("/etc/passwd")
    (own / "private").write_text("no part")
    packed = io.BytesIO()
    assert fetch.main(msgspec.json.encode(FetchRequest("r", 1)), io.BytesIO(), packed) == 0
    unpack(packed, bundle)
    assert (bundle / "events" / "rank-00001.jsonl").read_bytes() == b"\x00\xff" * 100_000
    assert {path for path in everything(bundle) if "/" in path} == {"events/rank-00001.jsonl"}


def test_a_node_that_wrote_nothing_sends_nothing(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    packed = io.BytesIO()
    assert fetch.main(msgspec.json.encode(FetchRequest("r", 1)), io.BytesIO(), packed) == 0
    before = everything(bundle)
    unpack(packed, bundle)
    assert everything(bundle) == before
