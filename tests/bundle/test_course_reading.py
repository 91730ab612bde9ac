"""Which raw files the charts of a run are made from, and what a bundle is like that lacks some."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from recorded_bundles import FOLDER, recorded_bundle

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.curve_files import find_curve
from flagperf.metrics.alignment import LossCurve
from flagperf_publish.pages.timeline import read_course


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name[17:])
def test_the_course_agrees_with_what_was_recorded(path: Path) -> None:
    """Losses with the curve that `align` compares, throughput with the metric, memory with its peak."""
    run = read_bundle(path).run
    course = read_course(path, run)
    assert course.missing == ()
    curve = find_curve(path)
    if isinstance(curve, LossCurve) and course.steps and len(curve.points) <= 120:
        known = {point.step: point.loss for point in curve.points if point.loss is not None}
        assert {round(point.x): point.middle for point in course.steps.losses} == pytest.approx(known)
    peak = run.metric("mem_used")
    if peak is not None and peak.value is not None:
        found = [bucket.high for buckets in course.cards["used_bytes"].values() for bucket in buckets]
        assert max(found) == peak.value


def test_the_mean_rate_is_the_measured_throughput() -> None:
    path = recorded_bundle("llama2_7b_finetune")
    run = read_bundle(path).run
    course = read_course(path, run)
    speed = run.metric("p_core")
    assert course.steps is not None and speed is not None and speed.interval is not None
    rates = [bucket.middle for bucket in course.steps.rates["compute"]]
    assert speed.interval.low * 0.9 < sum(rates) / len(rates) < speed.interval.high * 1.1
    assert sum(course.steps.computes) == pytest.approx(speed.inputs["seconds"], rel=1e-6)


def test_a_bundle_without_raw_files_names_them(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.mkdir()
    for name in ("run.json", "environment.json"):
        shutil.copy(recorded_bundle("distilbert_1x2") / name, path)
    course = read_course(path, read_bundle(path).run)
    assert course.ranks == () and course.cards == {} and course.steps is None
    assert course.missing == (
        "events/parent.jsonl", "events/rank-00000.jsonl", "events/rank-00001.jsonl", "samples/node-000.jsonl",
    )  # fmt: skip


def test_a_damaged_file_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = shutil.copytree(recorded_bundle("distilbert_1x2"), tmp_path / "damaged")
    (path / "events/rank-00001.jsonl").write_text("{not json\n\n")
    course = read_course(path, read_bundle(path).run)
    assert course.missing == ("events/rank-00001.jsonl",)
    assert [rank.rank for rank in course.ranks] == [0]


def test_little_is_read_of_a_large_run_but_the_first_file_always() -> None:
    path = recorded_bundle("llama2_70b_2x2")
    course = read_course(path, read_bundle(path).run, read_bytes=1)
    assert len(course.ranks) == 1 and course.ranks[0].rank == 0 and course.num_nodes == 1
    assert course.steps is not None and course.steps.rates
