"""Curves of recorded events. The records stand in tests/replays."""

import msgspec
import pytest
from metric_builders import (
    MODEL,
    began,
    ended,
    make_job,
    make_manifest,
    rank_file,
    record_of,
    step,
)
from test_replays import JOB, replay_record

from flagperf.api import DataFile
from flagperf.events import DataDescribed
from flagperf.metrics.alignment import CurveData, CurvePoint, loss_curve
from flagperf.metrics.observed import Observed


def curve_of(*ranks, events=(), job=None, **manifest):
    """One rank per argument, each with one step per (loss, samples) pair or StepFinished fields."""
    files = []
    for rank, pairs in enumerate(ranks):
        steps = [step(n, n, n + 1, loss=loss, samples=samples) for n, (loss, samples) in enumerate(pairs, start=1)]
        files.append(rank_file(*events, began(1), *steps, ended(99), rank=rank))
    return loss_curve(Observed(job or make_job([len(files)]), make_manifest(**manifest), record_of(*files)))


def test_a_loss_is_the_mean_over_the_samples_of_all_ranks():
    """(2 x 3 + 1 x 1) / 4 = 1.75 and (4 x 1 + 8 x 3) / 4 = 7; a rank without samples has no part."""
    curve = curve_of([(2.0, 3), (4.0, 1), (5.0, 2)], [(1.0, 1), (8.0, 3), (None, 0)])
    assert curve.points == (CurvePoint(1, 1.75, 4), CurvePoint(2, 7.0, 4), CurvePoint(3, 5.0, 2))


def test_warm_up_belongs_to_the_curve():
    """Ten steps, two of them warm-up; the last one (0.5 x 3 + 0.9 x 1) / 4 = 0.6."""
    curve = loss_curve(Observed(JOB, make_manifest(), replay_record("clean-2-ranks")))
    assert (curve.first_step, curve.last_step) == (1, 10)
    assert curve.points[0] == CurvePoint(1, 2.5, 8)
    assert curve.points[-1] == CurvePoint(10, pytest.approx(0.6), 4)


@pytest.mark.parametrize("name", ["one-rank-dead", "torn-last-line", "empty"])
def test_a_run_that_was_not_finished_has_no_curve_but_a_reason(name):
    assert loss_curve(Observed(JOB, make_manifest(), replay_record(name))).reason == "run_failed"


def test_a_run_that_diverged_has_a_curve_that_says_so():
    steps = [step(n, n, n + 1, diverged=True) for n in (1, 2)]
    curve = loss_curve(Observed(make_job(), make_manifest(), record_of(rank_file(began(1), *steps, ended(9)))))
    assert [point.loss for point in curve.points] == [None, None]
    assert curve.points[1].remark == "training diverged: the loss of step 2 is not a finite number"


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([(None, 1), (None, 1)], "training", "no loss was recorded at any step"),
        ([], "training", "no step finished"),
        ([(1.0, 1)], "inference", "not measured by a case of kind inference"),
    ],
)
def test_where_there_are_no_losses_there_is_no_curve(steps, kind, words):
    assert curve_of(steps, kind=kind).detail == words


def test_a_curve_says_what_it_is_of():
    data = [DataDescribed(0, "train", 5, "aa"), DataDescribed(0, "eval", 2, "bb")]
    curve = curve_of([(1.0, 1)], [(1.0, 1)], events=[MODEL, *data])
    assert (curve.case, curve.case_version, curve.run, curve.vendor, curve.shape) == ("demo", 1, "r", "acme", "1x2")
    assert curve.model == {"parameters": 1000, "layers": 1, "heads": 1, "sequence": 16}
    assert curve.data == (CurveData("eval", "bb"), CurveData("train", "aa"))
    assert curve.values == {"training.warmup_steps": 0, "evaluation.target": 0.75}


def test_files_stand_for_data_that_the_case_did_not_describe():
    job = make_job(data_files=(DataFile("train.bin", 10, "cc"),))
    assert curve_of([(1.0, 1)], job=job).data == (CurveData("train.bin", "cc"),)


def test_a_simulated_run_is_called_so():
    job = msgspec.structs.replace(make_job(), simulated=True)
    assert curve_of([(1.0, 1)], job=job).vendor == "acme (simulated)"
