"""What charts are drawn from, each number checkable by hand: the course of ranks and cards, and its points."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_builders import (
    GIB,
    began,
    ended,
    evaluated,
    logged,
    ns,
    rank_file,
    reported,
    sample,
    sample_file,
    step,
    warm,
)
from recorded_bundles import FOLDER, recorded_bundle

from flagperf.api import Reading
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.curve_files import find_curve
from flagperf.event_files import EventFile
from flagperf.events import Sampled
from flagperf.kinds import TRAINING
from flagperf.metrics.alignment import LossCurve
from flagperf_publish.pages.timeline import (
    MAX_POINTS,
    PARTS,
    Bucket,
    RankCourse,
    card_courses,
    means,
    node_figures,
    on_grid,
    over_cards,
    rank_course,
    ratios,
    read_course,
    step_course,
)


def course_of(*events, rank: int = 0, launched: float = 0.0, **more) -> RankCourse:
    course = rank_course(rank_file(*events, rank=rank, **more), TRAINING, ns(launched))
    assert course is not None
    return course


TYPICAL = (
    began(10),
    step(1, 10, 12, loss=3.0),
    warm(12, 1),
    step(2, 13, 16, compute=2.5, wait=1.0, samples=8, loss=2.0),
    evaluated(16, 20),
    reported(step=2, acc=0.5),
    step(3, 20, 22, samples=8, loss=1.0),
    logged(22, 23),
    ended(24),
)


def test_times_are_seconds_since_the_launch() -> None:
    course = course_of(*TYPICAL, launched=4)
    assert (course.began, course.measured, course.ended) == (6, 8, 20)
    assert list(course.ends) == [8, 12, 18]
    assert course.evaluations == ((12, 16),)
    assert course.reports == [(2, {"acc": 0.5})]
    assert list(course.periods) == [2, 4, 2], "without evaluation and logging"


def test_the_parts_make_up_the_whole_time() -> None:
    parts = course_of(*TYPICAL, launched=4, end=None).parts
    assert tuple(parts) == PARTS
    assert parts == {
        "start_up": 6, "warm_up": 2, "data_wait": 1, "compute": 4.5, "evaluation": 4, "logging": 1, "other": 1.5,
        "end": 976,
    }  # fmt: skip


def test_a_rank_that_died_has_steps_but_no_parts() -> None:
    file = rank_file(began(10), step(1, 10, 12), step(2, 12, 14))
    course = rank_course(EventFile(file.events[:-1]), TRAINING, 0)
    assert course is not None and list(course.ends) == [12, 14] and course.parts == {}


def test_work_is_summed_over_ranks_and_the_slowest_decides_the_time() -> None:
    fast = course_of(began(0), step(1, 0, 2, samples=4), ended(2))
    slow = course_of(began(0), step(1, 0, 4, samples=4), ended(4), rank=1)
    found = step_course([fast, slow], "samples", None)
    assert found is not None
    assert found.rates["compute"][0].middle == 2  # 8 samples in 4 s
    assert found.computes == [4]
    of_a_part = step_course([fast], "samples", 100.0)  # the mean work of all ranks counts
    assert of_a_part is not None and of_a_part.rates["compute"][0].middle == 50


def test_warmup_is_in_the_losses_and_not_in_the_rates() -> None:
    found = step_course([course_of(*TYPICAL)], "samples", None)
    assert found is not None
    assert [(point.x, point.middle) for point in found.losses] == [(1, 3), (2, 2), (3, 1)]
    assert [point.x for point in found.rates["period"]] == [16, 22]


def test_the_loss_is_the_mean_over_samples_and_a_step_without_one_is_left_out() -> None:
    ranks = [
        course_of(began(0), step(1, 0, 1, samples=1, loss=1.0), step(2, 1, 2, loss=None), ended(2)),
        course_of(began(0), step(1, 0, 1, samples=3, loss=5.0), step(2, 1, 2, loss=4.0), ended(2), rank=1),
    ]
    found = step_course(ranks, "samples", None)
    assert found is not None and [(point.x, point.middle) for point in found.losses] == [(1, 4.0)]


def test_a_case_without_steps_has_no_steps() -> None:
    assert step_course([course_of(began(0), ended(9))], "samples", None) is None
    assert step_course([], "samples", None) is None


# --- cards ----------------------------------------------------------------------------------------------------------


def test_figures_of_the_cards_of_the_job_alone_and_only_those_that_were_read() -> None:
    file = sample_file(
        sample(5, {"card-0": GIB, "card-9": GIB}, baseline=True),
        sample(10, {"card-0": GIB, "card-9": GIB}),
        sample(20, {"card-0": None}),
        sample(30, {"card-0": 3 * GIB}),
    )
    found = node_figures(file, ["card-0"], ns(10))
    assert found == {"used_bytes": {(0, "card-0"): ([0, 20], [GIB, 3 * GIB])}}


def test_samples_out_of_order_are_ordered() -> None:
    readings = [Sampled(ns(at), (Reading("card-0", power_watts=float(at)),)) for at in (3, 1, 2)]
    assert node_figures(sample_file(*readings), ["card-0"], 0)["power_watts"] == {(0, "card-0"): ([1, 2, 3], [1, 2, 3])}


def test_cards_together_are_their_median_and_the_extremes_of_all() -> None:
    columns = {(0, f"card-{slot}"): ([0.0, 1.0], [float(slot), 10.0 * slot]) for slot in range(5)}
    first, last = over_cards(card_courses(columns).values())
    assert (first.low, first.middle, first.high) == (0, 2, 4)
    assert (last.low, last.middle, last.high) == (0, 20, 40)


def test_a_spike_of_one_card_among_many_samples_is_kept() -> None:
    values = [1.0] * 5000
    values[3777] = 99.0
    columns = {(0, "a"): ([float(x) for x in range(5000)], values), (0, "b"): ([0.0, 4999.0], [1.0, 1.0])}
    together = over_cards(card_courses(columns).values())
    assert max(point.high for point in together) == 99.0
    assert len(together) <= 121 and all(math.isfinite(point.middle) for point in together)


# --- many values as few points: no extreme is lost, and few values stay as they are -----------------------------------


numbers = st.floats(-1e6, 1e6, allow_nan=False)


def test_a_bucket_has_the_mean_and_the_extremes_of_its_values_at_its_last_x() -> None:
    found = means(list(range(6)), [1.0, 3.0, 2.0, 10.0, 0.0, 5.0], num=2)
    assert found == (Bucket(2, 1.0, 2.0, 3.0), Bucket(5, 0.0, 5.0, 10.0))
    assert means([1.0, 2.0], [5.0, 7.0]) == (Bucket(1.0, 5.0, 5.0, 5.0), Bucket(2.0, 7.0, 7.0, 7.0))
    assert means([], []) == ()


def test_a_ratio_of_a_bucket_is_that_of_its_sums() -> None:
    """A long step counts more than a short one: 20 samples in 4 s are 5 a second."""
    assert ratios([1.0, 2.0], [10.0, 10.0], [1.0, 3.0], num=1) == (Bucket(2.0, 10 / 3, 5.0, 10.0),)
    assert ratios([1.0, 2.0], [10.0, 10.0], [0.0, 2.0]) == (Bucket(2.0, 5.0, 5.0, 5.0),), "one without a duration"


@given(st.lists(numbers, min_size=1, max_size=1000))
def test_extremes_survive_and_there_are_never_too_many_points(values: list[float]) -> None:
    found = means(list(range(len(values))), values)
    assert len(found) == min(len(values), MAX_POINTS)
    assert min(each.low for each in found) == min(values)
    assert max(each.high for each in found) == max(values)


@given(st.lists(numbers, min_size=1, max_size=300), st.integers(1, 50))
def test_a_grid_loses_nothing_either(values: list[float], num: int) -> None:
    xs = [float(index) for index in range(len(values))]
    found = on_grid(xs, values, xs[0], xs[-1], num)
    assert 1 <= len(found) <= num
    assert (min(each.low for each in found), max(each.high for each in found)) == (min(values), max(values))
    assert [each.x for each in found] == sorted(each.x for each in found)


def test_places_of_a_grid_without_a_value_are_left_out() -> None:
    found = on_grid([0.0, 1.0, 9.0], [1.0, 3.0, 5.0], 0.0, 10.0, 5)
    assert found == (Bucket(0.5, 1.0, 2.0, 3.0), Bucket(9.0, 5.0, 5.0, 5.0))


# --- raw files: which are read, and what a bundle is like that lacks some ---------------------------------------------


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
