"""Archives of others: what is not a run as `runs pack` writes it is refused, and leaves nothing."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_builders import RUN, archive_of, entry, file_entry, python_tar, recorded_files, renamed, with_files

from flagperf.bundle.verify import verify_bundle
from flagperf.errors import BadInput, BundleFailed
from flagperf_publish.passing import archives
from flagperf_publish.passing.archives import unpack

FILES = recorded_files()
HARMLESS = f"{RUN}/logs/rank-00099.log"


def unpacked_files(path: Path) -> dict[str, bytes]:
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def refused(archive: Path, words: str, **options: int) -> None:
    """Neither the folder of the runs nor anything else is left."""
    runs = archive.parent / "deep" / "runs"
    outside = set(archive.parent.rglob("*"))
    with pytest.raises(BadInput, match=words):
        unpack(archive, runs, **options)
    assert set(archive.parent.rglob("*")) == outside


def test_a_run_that_was_packed_verifies_where_it_arrives(tmp_path: Path) -> None:
    (found,) = unpack(with_files(tmp_path / "a.tgz", FILES), tmp_path / "runs")
    assert (found.id, found.state) == (RUN, "unpacked")
    assert unpacked_files(tmp_path / "runs") == FILES
    assert verify_bundle(Path(found.path)).problems == ()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [RUN]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_plain_archive_made_with_tar_is_accepted(tmp_path: Path, form: int, mode: str) -> None:
    assert unpack(python_tar(tmp_path / "runs.bin", mode, form), tmp_path / "runs")[0].state == "unpacked"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/cron.d/evil",
        f"/{RUN}/run.json",
        f"../{RUN}/run.json",
        f"{RUN}/../../evil.json",
        f"{RUN}/logs/../../../evil.log",
        f"{RUN}/events/../run.json",
        f"./{RUN}/run.json",
        f"{RUN}//run.json",
        f"{RUN}\\..\\evil",
        "..",
        ".",
        "/",
        "run.json",
        f".{RUN}/run.json",
        f"{RUN}/.bashrc",
        f"{RUN}/evil.py",
        f"{RUN}/logs/evil.log",
        f"{RUN}/Run.json",
        f"{RUN}/logs/rank-00000.log/deeper",
        f"{RUN}/events/deeper/rank-00000.jsonl",
        f"{RUN}\x1b[2J/run.json",
    ],
)  # fmt: skip
def test_a_name_that_no_bundle_has_is_refused(tmp_path: Path, name: str) -> None:
    refused(with_files(tmp_path / "a.tgz", FILES, file_entry(name, b"evil")), "is not the name of a file")
    refused(archive_of(tmp_path / "a.tgz", [entry(name, tarfile.DIRTYPE)]), "is not the name|has no run.json|no run")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.CHRTYPE, "is a device"),
        (tarfile.BLKTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a pipe"),
        (tarfile.CONTTYPE, "is an entry of type"),
        (tarfile.GNUTYPE_SPARSE, "is a sparse file"),
        (tarfile.GNUTYPE_LONGNAME, "is a long name"),
        (tarfile.XHDTYPE, "is an extended header"),
        (tarfile.XGLTYPE, "is an extended header"),
        (b"Z", "is an entry of type"),
    ],
)
def test_only_files_and_folders_are_unpacked(tmp_path: Path, kind: bytes, words: str) -> None:
    for target in ("run.json", "../../outside", "/etc/passwd"):
        refused(with_files(tmp_path / "a.tgz", FILES, entry(HARMLESS, kind, target=target)), words)


def test_an_extended_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    header = entry("x", tarfile.XHDTYPE, size=8 << 30)
    refused(archive_of(tmp_path / "a.tgz", [header, bytes(1 << 20)]), "is an extended header")


def test_duplicates_and_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    again = file_entry(f"{RUN}/run.json", b"{}")
    refused(with_files(tmp_path / "a.tgz", FILES, again), r"run\.json twice")
    folder = entry(f"{RUN}/logs", tarfile.DIRTYPE)
    refused(with_files(tmp_path / "a.tgz", FILES, folder, folder), "logs twice")
    refused(with_files(tmp_path / "a.tgz", {**FILES, **renamed(FILES, RUN.upper())}), "differ in case only")


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    bomb = file_entry(HARMLESS, bytes(80 << 20))
    archive = with_files(tmp_path / "a.tgz", FILES, bomb)
    assert archive.stat().st_size < 200_000
    refused(archive, r"more than 64 MiB of content, the limit for an archive of its size; --max-gib raises it")


def test_the_total_size_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 20_000)
    refused(with_files(tmp_path / "a.tgz", FILES), "more than 0 MiB of content")


def test_a_limit_of_the_users_own_replaces_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(with_files(tmp_path / "a.tgz", FILES), "more than 0 MiB of content", max_bytes=1000)
    monkeypatch.setattr(archives, "MAX_BYTES", 1000)
    assert unpack(with_files(tmp_path / "b.tgz", FILES), tmp_path / "runs", max_bytes=1 << 30)


def test_the_number_of_entries_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", len(FILES) - 1)
    refused(with_files(tmp_path / "a.tgz", FILES), "more than 8 entries")


def test_a_size_that_lies_is_refused(tmp_path: Path) -> None:
    refused(archive_of(tmp_path / "a.tgz", [entry(f"{RUN}/run.json", size=1 << 40)]), "it ends early")
    refused(archive_of(tmp_path / "a.tgz", [entry(f"{RUN}/logs", tarfile.DIRTYPE, size=512)]), "impossible size")
    refused(archive_of(tmp_path / "a.tgz", [entry(f"{RUN}/run.json", size=5000)]), "it ends early")


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("how", ["gzip", "plain"])
def test_a_truncated_archive_is_refused(tmp_path: Path, keep: float, how: str) -> None:
    whole = with_files(tmp_path / "a.tgz", FILES).read_bytes()
    content = whole if how == "gzip" else gzip.decompress(whole)[:-1024]
    (tmp_path / "a.tgz").write_bytes(content[: int(len(content) * keep)])
    refused(tmp_path / "a.tgz", "is damaged|ends early")


def test_a_flipped_byte_of_the_content_is_found(tmp_path: Path) -> None:
    content = bytearray(gzip.decompress(with_files(tmp_path / "a.tgz", FILES).read_bytes()))
    place = content.index(b'"training.seed"')
    content[place + 1] ^= 1
    (tmp_path / "a.tgz").write_bytes(gzip.compress(bytes(content)))
    refused(tmp_path / "a.tgz", r"run\.json has changed since the run")


def test_something_behind_the_end_is_refused(tmp_path: Path) -> None:
    content = gzip.decompress(with_files(tmp_path / "a.tgz", FILES).read_bytes())
    (tmp_path / "a.tgz").write_bytes(gzip.compress(content + b"more"))
    refused(tmp_path / "a.tgz", "something follows the end")


@pytest.mark.parametrize(
    "content", [b"", b"not an archive", bytes(2048), b"\x1f\x8b\x08garbage", b"\x28\xb5\x2f\xfdxx"]
)
def test_what_is_no_archive_is_called_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    refused(tmp_path / "a.tgz", "not a tar archive|is damaged|ends early|no run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda files: files.pop(f"{RUN}/MANIFEST"), "has no MANIFEST: the run was never finished"),
        (lambda files: files.pop(f"{RUN}/environment.json"), r"environment\.json is missing"),
        (lambda files: files.pop(f"{RUN}/run.json"), r"has no run\.json"),
        (lambda files: files.update({HARMLESS: b"x"}), "rank-00099.log is not in MANIFEST"),
        (lambda files: files.update({f"{RUN}/MANIFEST": b"nonsense"}), "not in the format of sha256sum"),
        (lambda files: files.update({f"{RUN}/logs/rank-00000.log": b"x"}), "rank-00000.log has changed"),
    ],
)
def test_a_run_that_is_not_as_its_manifest_says_is_refused(
    tmp_path: Path, change: Callable[[dict[str, bytes]], object], words: str
) -> None:
    files = dict(FILES)
    change(files)
    refused(with_files(tmp_path / "a.tgz", files), words)


def test_a_run_under_another_name_is_refused(tmp_path: Path) -> None:
    other = {name.replace(RUN, "other"): content for name, content in FILES.items()}
    refused(with_files(tmp_path / "a.tgz", other), f"its run.json is of run {RUN}")


def test_one_bad_run_keeps_the_good_ones_out(tmp_path: Path) -> None:
    bad = {name: content for name, content in renamed(FILES, "zzz").items() if not name.endswith("rank-00000.log")}
    refused(with_files(tmp_path / "a.tgz", {**FILES, **bad}), "zzz is not unpacked")


def test_a_run_that_is_there_with_other_content_stays(tmp_path: Path) -> None:
    archive, runs = with_files(tmp_path / "a.tgz", FILES), tmp_path / "runs"
    unpack(archive, runs)
    assert unpack(archive, runs)[0].state == "already there"
    (runs / RUN / "logs" / "rank-00000.log").write_text("mine")
    other = with_files(tmp_path / "b.tgz", {**renamed(FILES, "aaa"), **FILES})
    with pytest.raises(BadInput, match="exists and has other content"):
        unpack(other, runs)
    assert (runs / RUN / "logs" / "rank-00000.log").read_text() == "mine"
    assert [path.name for path in runs.iterdir()] == [RUN]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot unpack into .*see --runs-dir"):
        unpack(with_files(tmp_path / "a.tgz", FILES), tmp_path / "file" / "runs")


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "file")

    monkeypatch.setattr(archives, "_checked", full_disk)
    with pytest.raises(BundleFailed, match="No space left on device"):
        unpack(with_files(tmp_path / "a.tgz", FILES), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from flagperf_publish.passing import archives; from flagperf.cli import run_cli\n"
        "archives._checked = lambda *_, **__: (print('unpacked', flush=True), time.sleep(3600))\n"
        "sys.exit(run_cli(['runs', 'unpack', sys.argv[1], '--runs-dir', sys.argv[2]]))"
    )
    archive = with_files(tmp_path / "a.tgz", FILES)
    with subprocess.Popen(
        [sys.executable, "-c", code, archive, tmp_path / "runs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"unpacked\n"
        assert list((tmp_path / "runs").iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 130
    assert not (tmp_path / "runs").exists()
