from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.bundle.bundle import (
    broken_files,
    check_writable,
    create_bundle,
    file_digests,
    read_bundle,
    read_record,
    seal,
    unreadable_files,
    witness_problems,
    write_manifest,
    write_run,
)
from flagperf.bundle.listing import find_run, runs_directory
from flagperf.bundle.run_record import Ending
from flagperf.errors import BadInput, BundleFailed
from flagperf.event_files import EventWriter, read_events, this_clock
from flagperf.events import EVENT_SCHEMA, BundleSealed, RunEnded, RunStarted, SpanBegan
from run_builders import make_run

PARENT = "events/parent.jsonl"


def finished_bundle(folder: Path, name: str = "20260101T000000Z-demo-cpu-1x1-abc123") -> Path:
    run = make_run(name)
    bundle = create_bundle(folder, run, ())
    with EventWriter(bundle / "events" / "parent.jsonl") as writer:
        writer.write(RunStarted(1, schema=EVENT_SCHEMA, clock=this_clock()))
    write_run(bundle, msgspec.structs.replace(run, ending=Ending("succeeded")))
    seal(bundle)
    return bundle


def test_a_bundle_reads_back_as_it_was_written(tmp_path: Path) -> None:
    bundle = finished_bundle(tmp_path)
    recorded = read_bundle(bundle)
    assert recorded.run == msgspec.structs.replace(make_run(bundle.name), ending=Ending("succeeded"))
    assert recorded.path == str(bundle)


def test_the_manifest_is_what_sha256sum_reads(tmp_path: Path) -> None:
    bundle = finished_bundle(tmp_path)
    done = subprocess.run(["sha256sum", "--check", "--quiet", "MANIFEST"], cwd=bundle, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert broken_files(bundle, file_digests(bundle)) == []


def test_changed_missing_and_added_files_are_named(tmp_path: Path) -> None:
    bundle = finished_bundle(tmp_path)
    (bundle / "events" / "parent.jsonl").write_text("")
    (bundle / "environment.json").unlink()
    (bundle / "added.txt").write_text("x")
    assert broken_files(bundle, file_digests(bundle)) == [
        "environment.json is missing",
        "added.txt is not in MANIFEST",
        "events/parent.jsonl has changed since the run",
    ]


def test_writing_is_atomic_and_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = finished_bundle(tmp_path)
    before = (bundle / "run.json").read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(BundleFailed, match=r"No space left on device; .* free disk space"):
        write_run(bundle, make_run("other"))
    with pytest.raises(BundleFailed, match="No space left on device"):
        seal(bundle)
    assert (bundle / "run.json").read_bytes() == before
    assert not [path for path in bundle.iterdir() if path.name.startswith(".")]


def test_a_file_that_another_command_renames_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, walk = finished_bundle(tmp_path), os.walk
    unfinished = bundle / ".run.json.x1"
    unfinished.touch()

    def renamed_once_listed(path: Path) -> Iterator[Any]:
        listed = list(walk(path))
        unfinished.replace(bundle / "run.json")
        return iter(listed)

    monkeypatch.setattr(os, "walk", renamed_once_listed)
    assert unreadable_files(bundle) == []


def test_a_bundle_that_cannot_be_begun_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(BadInput, match="No space left on device; choose another --runs-dir"):
        create_bundle(tmp_path, make_run("a"), ())
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_was_removed_is_said_to_be(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, make_run("a"), ())
    shutil.rmtree(bundle)
    with pytest.raises(BundleFailed, match="it was removed during the run"):
        write_run(bundle, make_run("a"))


def test_a_record_without_a_parent_file_is_empty(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, make_run("a"), ())
    with EventWriter(bundle / "events" / "rank-00001.jsonl") as writer:
        writer.write(SpanBegan(1, "training"))
    (bundle / "events" / "rank-00000.jsonl").touch()
    record = read_record(bundle)
    assert record.parent.events == ()
    assert [len(rank.events) for rank in record.ranks] == [0, 1]


def test_a_bundle_of_another_schema_is_refused(tmp_path: Path) -> None:
    bundle = finished_bundle(tmp_path)
    write_run(bundle, msgspec.structs.replace(make_run(bundle.name), schema=99))
    with pytest.raises(BadInput, match="store schema 99"):
        read_bundle(bundle)


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a readable bundle"):
        read_bundle(tmp_path)


def test_an_unwritable_place_is_found_before_anything_starts(tmp_path: Path) -> None:
    check_writable(tmp_path / "not" / "there" / "yet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "runs", Path("/proc/runs")):
        with pytest.raises(BadInput, match="--runs-dir"):
            check_writable(place)


def test_a_run_is_found_by_path_prefix_or_latest(tmp_path: Path) -> None:
    first = finished_bundle(tmp_path, "20260101T000000Z-demo-cpu-1x1-aaaaaa")
    last = finished_bundle(tmp_path, "20260102T000000Z-demo-cpu-1x1-bbbbbb")
    assert find_run("latest", tmp_path) == last
    assert find_run("20260101", tmp_path) == first
    assert find_run(str(first), Path("/nowhere")) == first
    with pytest.raises(BadInput, match="is ambiguous: 2 runs match"):
        find_run("2026", tmp_path)
    with pytest.raises(BadInput, match="unknown run '2027'"):
        find_run("2027", tmp_path)


def test_the_runs_directory_is_asked_environment_or_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGPERF_RUNS_DIR", "/elsewhere")
    assert runs_directory("here") == Path("here")
    assert runs_directory(None) == Path("/elsewhere")
    monkeypatch.delenv("FLAGPERF_RUNS_DIR")
    assert runs_directory(None) == Path("runs")


# --- what the parent's last event says about all files, also where somebody rewrote MANIFEST --------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return finished_bundle(tmp_path)


def problems(bundle: Path) -> list[str]:
    write_manifest(bundle, file_digests(bundle))
    return list(witness_problems(bundle, read_events(bundle / PARENT), file_digests(bundle)))


def test_the_last_event_has_every_other_file_and_its_own(bundle: Path) -> None:
    last = read_events(bundle / PARENT).events[-1]
    assert isinstance(last, BundleSealed)
    assert {*last.files, PARENT} == {*file_digests(bundle)} == {"run.json", "environment.json", PARENT}
    assert problems(bundle) == []


def test_the_last_event_names_changed_missing_and_added_files(bundle: Path) -> None:
    (bundle / "run.json").write_text("{}")
    (bundle / "environment.json").unlink()
    (bundle / "logs" / "more.log").write_text("x")
    (bundle / "MANIFEST.sig").write_text("not covered: it signs the rest")
    assert problems(bundle) == [
        "environment.json is missing",
        "logs/more.log was added after the run",
        "run.json has changed since the run",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"pid":', '"pid":1'),
        ('"t_ns":', '"t_ns":1'),
        ('"files":{', '"files":{ '),
        ('"own":"', '"own":"0'),
        ("}\n", "}"),
    ],
)
def test_every_byte_of_its_own_file_counts(bundle: Path, before: str, after: str) -> None:
    path = bundle / PARENT
    text = path.read_text()
    assert before in text
    path.write_text(text[: text.rindex(before)] + after + text[text.rindex(before) + len(before) :])
    assert problems(bundle) == [f"{PARENT} has changed since the run"]


def test_an_event_after_the_last_one_is_a_change(bundle: Path) -> None:
    with EventWriter(bundle / PARENT) as writer:
        writer.write(RunEnded(9, "succeeded"))
    assert problems(bundle) == [f"{PARENT} has changed since the run"]


def test_a_last_event_that_was_cut_off_is_missed(bundle: Path) -> None:
    path = bundle / PARENT
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert problems(bundle) == [f"{PARENT} lacks its last event, with the hashes of all files"]


def test_a_pipe_in_place_of_its_file_does_not_stop_the_end_of_a_run(bundle: Path) -> None:
    (bundle / PARENT).unlink()
    os.mkfifo(bundle / PARENT)
    with pytest.raises(BundleFailed, match=r"cannot seal the bundle .* is a pipe, not a regular file"):
        seal(bundle)


def test_a_name_that_is_not_utf8_is_named(bundle: Path) -> None:
    (bundle / "logs" / "\udcff.log").write_text("x")
    assert problems(bundle) == ["logs/\\xff.log was added after the run"]
