"""Loss curves of recorded events, and whether two are aligned."""

import math

import msgspec
import pytest
from curve_builders import STATED, curve
from hypothesis import given
from hypothesis import strategies as st
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
from flagperf.metrics.alignment import (
    RULES,
    CurveData,
    CurvePoint,
    StepGap,
    align_curves,
    changed_values,
    loss_curve,
    obstacles,
    unstated,
)
from flagperf.metrics.observed import Observed

TWO_PERCENT, EXACT = RULES["flagperf-2pct"], RULES["exact"]
REFERENCE = {step: 10 - 0.05 * step for step in range(1, 101)}


def said(messages):
    return [str(each) for each in messages]


def scaled(factor_of_step):
    """The reference times a factor that depends on the step."""
    return curve({step: loss * factor_of_step(step) for step, loss in REFERENCE.items()})


def judged(run, reference=REFERENCE, rule=TWO_PERCENT):
    run, reference = (each if isinstance(each, msgspec.Struct) else curve(each) for each in (run, reference))
    assert said(obstacles(run, reference, rule)) == []
    return align_curves(run, reference, rule)


# --- flagperf-2pct --------------------------------------------------------------------------------------------------


def test_what_happens_before_step_21_is_not_judged():
    alignment = judged(scaled(lambda step: 1.5 if step <= 20 else 1.01))
    assert alignment.aligned
    assert alignment.mean_error == pytest.approx(0.01)
    assert (alignment.first_step, alignment.last_step, alignment.num_judged) == (21, 100, 80)
    assert alignment.first_above is None


def test_one_bad_step_of_eighty_is_enough():
    """(79 x 1.9 % + 11 %) / 80 = 2.01375 %"""
    alignment = judged(scaled(lambda step: 1.11 if step == 50 else 1.019))
    assert not alignment.aligned
    assert alignment.mean_error == pytest.approx(0.0201375)
    assert (alignment.largest.step, alignment.largest.error) == (50, pytest.approx(0.11))
    assert alignment.first_above == alignment.largest


def test_exactly_two_percent_is_not_below_two_percent():
    alignment = judged([102.0] * 100, [100.0] * 100)
    assert not alignment.aligned
    assert alignment.first_above.step == 21


@pytest.mark.parametrize("reference", [0.1, 0.3, 0.7, 3.3, 7.7, 1e-3])
def test_rounding_does_not_decide_at_the_limit(reference):
    assert not judged([reference * 1.02] * 30, [reference] * 30).aligned
    assert judged([reference * 1.0199] * 30, [reference] * 30).aligned


def test_a_loss_that_is_too_small_is_as_wrong_as_one_that_is_too_large():
    assert judged(scaled(lambda step: 0.97)).mean_error == pytest.approx(0.03)
    assert not judged(scaled(lambda step: 0.97)).aligned


def test_the_drift_is_the_slope_of_the_signed_errors():
    """The error falls from +0.79 % at step 21 by 0.01 % a step: the line has a slope of -0.0001."""
    alignment = judged(scaled(lambda step: 1 + (100 - step) * 1e-4))
    assert alignment.drift_per_step == pytest.approx(-1e-4)
    assert judged(scaled(lambda step: 1.01)).drift_per_step == pytest.approx(0)


def test_a_single_judged_step_has_no_drift():
    alignment = judged([1.0] * 21, [1.0] * 21)
    assert alignment.aligned and alignment.num_judged == 1
    assert alignment.drift_per_step is None


# --- exact ----------------------------------------------------------------------------------------------------------


def test_exact_is_bitwise_from_the_first_step_on():
    assert judged(REFERENCE, rule=EXACT).aligned
    changed = {**REFERENCE, 1: math.nextafter(REFERENCE[1], 11)}
    alignment = judged(changed, rule=EXACT)
    assert not alignment.aligned
    assert alignment.first_above.step == alignment.first_step == 1


def test_exact_with_a_tolerance_judges_the_largest_error():
    rule = msgspec.structs.replace(EXACT, limit=1e-5)
    assert judged(scaled(lambda step: 1 + 9e-6), rule=rule).aligned
    alignment = judged(scaled(lambda step: 1 + (2e-5 if step == 7 else 0)), rule=rule)
    assert not alignment.aligned
    assert alignment.mean_error < 1e-5 < alignment.largest.error
    assert alignment.first_above.step == 7


# --- losses that are not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 50, 100])
@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_step_without_a_loss_fails_the_check_and_is_named(rule, step):
    broken = {**REFERENCE, step: None}
    assert judged(broken, rule=rule).gaps == (StepGap(step, f"RUN: step {step} has no finite loss on rank 0"),)
    assert judged(REFERENCE, broken, rule).gaps == (
        StepGap(step, f"REFERENCE: step {step} has no finite loss on rank 0"),
    )
    assert not judged(broken, rule=rule).aligned
    assert not judged(REFERENCE, broken, rule).aligned


def test_a_curve_without_any_loss_has_no_figures():
    alignment = judged(dict.fromkeys(REFERENCE))
    assert (alignment.aligned, alignment.mean_error, alignment.largest, alignment.num_compared) == (
        False,
        None,
        None,
        0,
    )
    assert len(alignment.gaps) == 100


def test_nothing_is_relative_to_a_loss_of_zero():
    zero = {**REFERENCE, 30: 0.0}
    assert judged(zero, zero).aligned
    alignment = judged(REFERENCE, zero)
    assert alignment.gaps == (StepGap(30, "the relative error of 8.5 vs. 0 is undefined"),)
    assert not alignment.aligned


# --- what can be compared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"case": "other"}, "RUN is from case toy, REFERENCE from other"),
        ({"case_version": 2}, "the version of the case is 1 in RUN, 2 in REFERENCE"),
        ({"values": {"training.seed": 7}}, "training.seed is 0 in RUN, 7 in REFERENCE"),
        (
            {"model": {"parameters": 1000, "layers": 3}},
            "model is 2 layers in RUN, 3 layers in REFERENCE",
        ),
        (
            {"data": (CurveData("train", "cd" * 32),)},
            "data is train (sha256 abababababab) in RUN, train (sha256 cdcdcdcdcdcd) in REFERENCE",
        ),
        (
            {"data": (*STATED["data"], CurveData("more", "cd" * 32))},
            "data is less in RUN, more (sha256 cdcdcdcdcdcd) in REFERENCE",
        ),
        ({"samples": 16}, "step 1 has 8 samples in RUN, 16 in REFERENCE"),
    ],
)
def test_curves_of_different_experiments_are_refused(changes, words):
    assert said(obstacles(curve(REFERENCE), curve(REFERENCE, **changes), TWO_PERCENT)) == [words]


def test_steps_pair_one_to_one():
    shorter = {step: REFERENCE[step] for step in range(1, 100)}
    words = "RUN has steps 1 to 99, REFERENCE has 1 to 100; steps are compared one to one"
    assert said(obstacles(curve(shorter), curve(REFERENCE), TWO_PERCENT)) == [words]
    later = {step + 100: loss for step, loss in REFERENCE.items()}
    assert said(obstacles(curve(later), curve(REFERENCE), EXACT)) == [words.replace("1 to 99", "101 to 200")]


def test_a_rule_needs_steps_to_judge():
    short = curve([1.0] * 20)
    assert said(obstacles(short, short, EXACT)) == []
    assert said(obstacles(short, short, TWO_PERCENT)) == [
        "rule flagperf-2pct judges steps from 21 on, but the curves end at step 20"
    ]


def test_every_obstacle_is_said_at_once():
    found = said(obstacles(curve([1.0] * 30), curve([1.0] * 31, case_version=2, values={"training.seed": 1}), EXACT))
    assert len(found) == 3


def test_what_one_of_the_two_does_not_say_is_listed_and_not_compared():
    bare = curve(REFERENCE, samples=None, case_version=None, model={}, data=(), values={})
    assert said(obstacles(curve(REFERENCE), bare, TWO_PERCENT)) == []
    everything = ["the version of the case", "training.seed", "model", "data", "samples per step"]
    assert said(unstated(curve(REFERENCE), bare)) == said(unstated(bare, curve(REFERENCE))) == everything
    assert said(unstated(curve(REFERENCE), curve(REFERENCE))) == []


def test_other_values_may_differ_and_are_listed():
    here = curve(REFERENCE, values={"training.seed": 0, "parallel.tp": 1, "precision": "fp32", "only.here": 1})
    there = curve(REFERENCE, values={"training.seed": 0, "parallel.tp": 2, "precision": "bf16"})
    assert said(obstacles(here, there, EXACT)) == []
    assert changed_values(here, there) == {"parallel.tp": (1, 2), "precision": ("fp32", "bf16")}


# --- whatever the losses --------------------------------------------------------------------------------------------

any_loss = st.none() | st.floats(allow_nan=False, allow_infinity=False)
loss_pairs = st.lists(st.tuples(any_loss, any_loss), min_size=21, max_size=40)
real_losses = st.lists(st.floats(1e-3, 1e3), min_size=21, max_size=40)
rules = st.sampled_from(list(RULES.values()))


@given(loss_pairs, rules)
def test_any_two_curves_get_a_verdict_in_which_all_steps_are_accounted_for(pairs, rule):
    alignment = judged([a for a, _ in pairs], [b for _, b in pairs], rule)
    gaps = {gap.step for gap in alignment.gaps if gap.step >= alignment.first_step}
    assert alignment.num_compared + len(gaps) == alignment.num_judged
    assert not (alignment.aligned and alignment.gaps)
    if alignment.largest is not None:
        assert 0 <= alignment.largest.error < math.inf
        assert (alignment.first_above is None) <= rule.allows(alignment.largest.error)
    msgspec.json.encode(alignment)


@given(real_losses, st.floats(0, 0.5))
def test_a_constant_factor_is_judged_by_its_size(losses, error):
    alignment = judged([loss * (1 + error) for loss in losses], losses)
    assert alignment.mean_error == pytest.approx(error, abs=1e-9)
    if abs(error - TWO_PERCENT.limit) > 1e-9:
        assert alignment.aligned == (error < TWO_PERCENT.limit)


# --- curves of recorded events, which stand in tests/replays ----------------------------------------------------------


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
