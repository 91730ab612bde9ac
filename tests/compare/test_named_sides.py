"""Sides by what a user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.bundle.bundle import create_bundle, seal
from flagperf.bundle.run_record import Ending, Labels, RunGroup, write_labels
from flagperf.compare.sides import Side, named_sides
from flagperf.errors import BadInput
from flagperf.spec.published import PublishedResult
from run_builders import make_run, minimal_manifest

REFERENCE = PublishedResult("acme", "A1", 1, 1, "fp32", "none", "README.md", {"p_core": 3.0})
MANIFEST = minimal_manifest(references=(REFERENCE,))


def bundle(folder: Path, name: str, status: Any = "succeeded", group: RunGroup | None = None) -> Path:
    ending = Ending(status, "why") if status else None
    run = msgspec.structs.replace(make_run(name), ending=ending, group=group, manifest=MANIFEST, created=name)
    path = create_bundle(folder, run, ())
    if status:
        seal(path)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for index, (name, arm) in enumerate([("a1", "A"), ("b1", "B"), ("b2", "B"), ("a2", "A")], start=1):
        bundle(tmp_path, f"20260101T00000{index}Z-{name}", group=RunGroup("group-12345678", index, 4, arm))
    for index in (1, 2):
        bundle(tmp_path, f"20260102T00000{index}Z-plain", group=RunGroup("group-abcdef01", index, 3))
    bundle(tmp_path, "20260102T000003Z-plain", "failed", RunGroup("group-abcdef01", 3, 3))
    bundle(tmp_path, "20260103T000000Z-alone")
    bundle(tmp_path, "20260104T000000Z-running", None)
    write_labels(tmp_path / "20260103T000000Z-alone", Labels(("nightly",)))
    return tmp_path


def sides(runs: Path, *words: str, baseline: str | None = None) -> list[Side]:
    return named_sides(words, baseline, runs, lambda: [MANIFEST])


def names(side: Side) -> list[str]:
    return [recorded.run.id.partition("-")[2] for recorded in side.runs]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("20260103", ["alone"]),
        ("tag:nightly", ["alone"]),
        ("20260101*-a?", ["a1", "a2"]),
        ("20260101T000001,20260103", ["a1", "alone"]),
        ("group-12345678/B", ["b1", "b2"]),
        ("group-1234/A", ["a1", "a2"]),
        ("group-abc", ["plain", "plain"]),
    ],
)
def test_a_side_is_named_in_many_ways(runs: Path, word: str, expected: list[str]) -> None:
    other = bundle(runs, "20260109T000000Z-other")
    found, _ = sides(runs, word, str(other))
    assert names(found) == expected
    assert (found.letter, found.word) == ("A", word)


def test_a_pattern_of_paths(runs: Path) -> None:
    found, _ = sides(runs, f"{runs}/20260101*-a*", "20260103")
    assert names(found) == ["a1", "a2"]


def test_failed_runs_are_left_out_and_named(runs: Path) -> None:
    found, _ = sides(runs, "group-abcdef01", "20260103")
    assert [run.id for run in found.left_out] == ["20260102T000003Z-plain"]


def test_a_group_whose_settings_took_turns_is_compared_alone(runs: Path) -> None:
    one, other = sides(runs, "group-1234")
    assert [(one.letter, one.word), (other.letter, other.word)] == [
        ("A", "group-12345678/A"), ("B", "group-12345678/B"),
    ]  # fmt: skip
    assert names(other) == ["b1", "b2"]


def test_the_baseline_comes_first(runs: Path) -> None:
    one, other = sides(runs, "20260103", "group-abc", baseline="group-abc")
    assert (one.word, one.letter, other.letter) == ("group-abc", "A", "B")


def test_published_results(runs: Path) -> None:
    for word in ("published:demo-acme-a1-1x1-fp32", "published:Demo-acme"):
        _, found = sides(runs, "20260103", word)
        assert found.reference == REFERENCE and found.word == "published:demo-acme-a1-1x1-fp32"
    assert found.case is MANIFEST


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["20260103"], "needs two sides or more"),
        (["group-abc"], "group-abcdef01 has runs of one setting"),
        (["2027", "20260103"], "unknown run '2027'"),
        (["2027*", "20260103"], "no run matches '2027\\*'"),
        (["/nowhere/*", "20260103"], "no run matches '/nowhere/\\*'"),
        (["tag:daily", "20260103"], "no run in .* has the tag 'daily'"),
        (["tag:a b", "20260103"], "'a b' is not a tag"),
        (["group-77", "20260103"], "unknown group 'group-77'"),
        (["group-12345678/C", "20260103"], "unknown arm of group-12345678 'C'"),
        (["20260102T000003", "20260103"], r"no run with results to compare: 20260102T000003Z-plain \(failed\)"),
        (["20260104", "20260103"], r"no run with results to compare: 20260104T000000Z-running \(no ending\)"),
        (["published:demo-acme-b1", "20260103"], "unknown published result 'demo-acme-b1'; did you mean demo-acme-a1"),
        (["published:", "20260103"], "unknown published result ''"),
        (["20260103"] * 27, "at most 26 sides"),
    ],
)
def test_what_cannot_be_found(runs: Path, words: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        sides(runs, *words)


def test_an_unknown_baseline_is_named(runs: Path) -> None:
    with pytest.raises(BadInput, match="unknown side for --baseline 'x'"):
        sides(runs, "20260103", "group-abc", baseline="x")


def test_a_damaged_run_belongs_to_no_group(runs: Path) -> None:
    (runs / "20260101T000004Z-a2" / "run.json").write_text("{")
    one, _ = sides(runs, "group-1234")
    assert names(one) == ["a1"]
