from __future__ import annotations

import datetime
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from archive_builders import RECORDED, RUN
from recorded_bundles import IDS

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import Labels, write_labels
from flagperf.cli import run_cli
from flagperf.errors import BadInput, BundleFailed, MissingPart
from flagperf_publish.passing import archives
from flagperf_publish.passing.archives import compression_of, pack, unpack

UNFINISHED = IDS["parent_killed"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED / RUN, tmp_path / "runs" / RUN))


def test_the_same_run_gives_the_same_bytes_wherever_and_whenever_it_is(bundle: Path, tmp_path: Path) -> None:
    pack([RECORDED / RUN], tmp_path / "a.tar.gz", "gzip")
    for path in bundle.rglob("*"):
        os.utime(path, (1, 1))
    (bundle / "run.json").chmod(0o600)
    pack([bundle], tmp_path / "b.tar.gz", "gzip")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_any_tar_reads_it_and_finds_no_owner(bundle: Path, tmp_path: Path) -> None:
    pack([bundle], tmp_path / "a.tar.gz", "gzip")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    began = datetime.datetime.fromisoformat(read_bundle(bundle).run.created)
    assert {member.mtime for member in members} == {int(began.timestamp())}
    done = subprocess.run(["tar", "-xzf", "a.tar.gz", "-C", tmp_path / "runs"], cwd=tmp_path, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["all.tar.zst", "all.tzst", "all.tgz", "all.tar.gz"])
def test_runs_come_out_as_they_went_in(tmp_path: Path, name: str) -> None:
    bundles = sorted(path for path in RECORDED.iterdir() if path.name != UNFINISHED)
    pack(bundles, tmp_path / name, compression_of(Path(name)))
    found = unpack(tmp_path / name, tmp_path / "out")
    assert [run.id for run in found] == [path.name for path in bundles]
    for path in bundles:
        done = subprocess.run(["diff", "-r", path, tmp_path / "out" / path.name], capture_output=True, check=False)
        assert done.stdout == b""


def test_labels_go_along_unless_they_are_left_out(bundle: Path, tmp_path: Path) -> None:
    write_labels(bundle, Labels(("fast",), "with the new cooling"))
    pack([bundle], tmp_path / "with.tgz", "gzip")
    pack([bundle], tmp_path / "without.tgz", "gzip", labels=False)
    unpack(tmp_path / "with.tgz", tmp_path / "a")
    unpack(tmp_path / "without.tgz", tmp_path / "b")
    assert (tmp_path / "a" / RUN / "labels.json").exists()
    assert not (tmp_path / "b" / RUN / "labels.json").exists()


def test_a_damaged_run_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    with (bundle / "events" / "rank-00000.jsonl").open("ab") as file:
        file.write(b"\n")
    with pytest.raises(BadInput, match=r"rank-00000\.jsonl has changed since the run"):
        pack([bundle], tmp_path / "a.tgz", "gzip")
    assert not (tmp_path / "a.tgz").exists()


def test_a_link_in_a_run_is_not_followed(bundle: Path, tmp_path: Path) -> None:
    (bundle / "logs" / "rank-00007.log").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="is a link"):
        pack([bundle], tmp_path / "a.tgz", "gzip")


def test_an_unfinished_run_is_packed_and_unpacked_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--unfinished packs it"):
        pack([RECORDED / UNFINISHED], tmp_path / "a.tgz", "gzip")
    pack([RECORDED / UNFINISHED], tmp_path / "a.tgz", "gzip", unfinished=True)
    with pytest.raises(BadInput, match="--unfinished unpacks it"):
        unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (found,) = unpack(tmp_path / "a.tgz", tmp_path / "out", unfinished=True)
    assert not found.finished


def test_two_runs_of_one_id_are_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="several of these runs have the id"):
        pack([bundle, RECORDED / RUN], tmp_path / "a.tgz", "gzip")


def test_an_archive_that_is_there_is_never_replaced(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_text("mine")
    with pytest.raises(BadInput, match="exists; remove it"):
        pack([bundle], tmp_path / "a.tgz", "gzip")
    assert (tmp_path / "a.tgz").read_text() == "mine"


def test_a_full_disk_leaves_no_half_archive(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleFailed, match="No space left on device"):
        pack([bundle], tmp_path / "out" / "a.tgz", "gzip")
    assert list((tmp_path / "out").iterdir()) == []


def test_without_zstd_it_says_what_to_install(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    with pytest.raises(MissingPart, match=r"flagperf\[zstd\].*or use gzip"):
        pack([bundle], tmp_path / "a.tar.zst", "zstd")
    assert list(tmp_path.glob("*.zst")) == []


def test_a_name_that_says_nothing_needs_the_option(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="add --compression"):
        compression_of(Path("runs.zip"))
    assert compression_of(Path("runs.zip"), "gzip") == "gzip"


def test_gzip_headers_have_neither_name_nor_time(bundle: Path, tmp_path: Path) -> None:
    pack([bundle], tmp_path / "secret-customer.tgz", "gzip")
    content = (tmp_path / "secret-customer.tgz").read_bytes()
    assert content[3:8] == bytes(5)  # no flags, and no time
    assert gzip.decompress(content)[:8] == RUN[:8].encode()
    assert archives.SUFFIXES[".tgz"] == "gzip"


def test_the_command_names_the_archive_after_the_run(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["runs", "pack", RUN[:20], "--runs-dir", "runs"]) == 0
    assert capfd.readouterr().out == f"{RUN}.tar.gz\n"
    assert run_cli(["runs", "unpack", f"{RUN}.tar.gz", "--runs-dir", "runs"]) == 0
    printed = capfd.readouterr()
    assert printed.out == f"runs/{RUN}\n"
    assert "was already there, with the same content" in printed.err
