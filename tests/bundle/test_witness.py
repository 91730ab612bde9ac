"""What the parent's last event says about all files, also where somebody rewrote MANIFEST."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_bundle import finished_bundle

from flagperf.bundle.bundle import file_digests, seal, witness_problems, write_manifest
from flagperf.errors import BundleFailed
from flagperf.event_files import EventWriter, read_events
from flagperf.events import BundleSealed, RunEnded

PARENT = "events/parent.jsonl"


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


def test_changed_missing_and_added_files_are_named(bundle: Path) -> None:
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
