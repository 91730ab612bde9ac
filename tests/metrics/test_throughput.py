"""The window and what is divided by it, with numbers that a person can check."""

import pytest
from metric_builders import (
    MODEL,
    began,
    ended,
    evaluated,
    logged,
    make_job,
    make_manifest,
    metrics_of,
    rank_file,
    record_of,
    step,
    steps_of_a_second,
    warm,
)

WINDOWED = ("p_whole", "p_train", "p_core", "token/p/s", "step_time_p50", "data_wait_share", "mfu")
TRAINING = (*WINDOWED, "p_whole_all", "steps_kept", "train_time", "loss")


def one_rank(*events, warmup_steps=0, **job_changes):
    return metrics_of(make_job(warmup_steps=warmup_steps, **job_changes), record_of(rank_file(*events)))


def refused(metrics, names=WINDOWED):
    assert {metrics[name].value for name in names} == {None}
    reasons = {(metrics[name].reason, metrics[name].detail) for name in names}
    assert len(reasons) == 1
    return reasons.pop()


def test_fast_warm_up_cannot_turn_the_order_around():
    """10 steps of 32 samples, two warm-up steps of 0.5 s and eight of 1 s.

    All steps: 320 / 9 = 35.56; kept ones: 256 / 8 = 32.00. p_whole takes the kept ones, like p_train.
    """
    warm_up = [step(1, 0, 0.5, samples=32), step(2, 0.5, 1, samples=32)]
    kept = steps_of_a_second(8, start=1, first=3, samples=32)
    metrics = one_rank(began(0), *warm_up, warm(1, 2), *kept, ended(9), warmup_steps=2)
    assert metrics["p_whole_all"].value == pytest.approx(35.56, abs=0.005)
    assert metrics["p_whole"].value == metrics["p_train"].value == metrics["p_core"].value == 32.0
    assert (metrics["steps_kept"].value, metrics["steps_dropped"].value) == (8, 2)
    assert metrics["samples_kept"].value == 256


def test_evaluation_and_logging_count_in_p_whole_alone():
    """24 samples; W = 12 s; 3 s evaluation and 1 s logging leave 8 s; 4 steps compute 1.5 s each = 6 s."""
    steps = [step(n, 2 * n - 2, 2 * n, compute=1.5, wait=0.5, samples=6) for n in (1, 2, 3, 4)]
    metrics = one_rank(began(0), *steps, logged(8, 9), evaluated(9, 12), ended(12))
    assert metrics["p_whole"].value == 2.0
    assert metrics["p_train"].value == 3.0
    assert metrics["p_core"].value == 4.0
    assert metrics["data_wait_share"].value == 0.25
    assert metrics["train_time"].value == 12.0


def test_spans_are_clipped_to_the_window():
    """W from 2 to 6. Of an evaluation from 1 to 3 one second is inside; one after training is not in it at all."""
    events = [began(0), step(1, 0, 1), evaluated(1, 3), warm(2, 1), step(2, 3, 6, samples=9), ended(6), evaluated(6, 9)]
    metrics = one_rank(*events, warmup_steps=1)
    assert metrics["p_whole"].value == 9 / 4
    assert metrics["p_train"].value == 9 / 3


def two_ranks(**job_changes):
    """Rank 0 has the longer window, rank 1 computes longer: W 10 and 8 s, compute 4 and 6 s, 20 samples."""
    first = [step(n, n - 1, n, compute=1, samples=3, tokens=30, padded_tokens=10) for n in (1, 2, 3, 4)]
    second = [step(n, n - 1, n, compute=1.5, samples=2, tokens=10) for n in (1, 2, 3, 4)]
    files = rank_file(began(0), *first, ended(10)), rank_file(began(0), *second, ended(8), rank=1)
    return metrics_of(make_job([2], **job_changes), record_of(*files))


def test_over_ranks_counts_are_summed_and_the_longest_duration_divides():
    metrics = two_ranks()
    assert metrics["p_whole"].value == metrics["p_train"].value == 2.0
    assert metrics["p_core"].value == pytest.approx(20 / 6)
    assert metrics["p_core"].inputs == {"count": 20, "seconds": 6.0, "rank": 1, "timing": "device_events"}
    assert metrics["p_whole"].inputs["rank"] == 0


def test_percentiles_are_values_that_were_measured():
    """Of 1..10 s: half do not exceed 5, nine tenths not 9, 99 % not 10."""
    steps, at = [], 0
    for number in range(1, 11):
        steps.append(step(number, at, at + number))
        at += number
    metrics = one_rank(began(0), *steps, ended(at))
    assert [metrics[f"step_time_p{percent}"].value for percent in (50, 90, 99)] == [5.0, 9.0, 10.0]


def test_intervals_from_twenty_kept_steps():
    """The interval of p_core goes by compute, those of p_train and token/p/s by the period of a step."""
    steps = [step(n, n - 1, n, compute=0.5 if n <= 10 else 0.4, samples=2, tokens=4) for n in range(1, 21)]
    metrics = one_rank(began(0), *steps, ended(20))
    assert metrics["p_train"].interval.low == pytest.approx(2.0)
    assert metrics["p_train"].interval.high == pytest.approx(2.0)
    assert metrics["token/p/s"].interval.high == pytest.approx(4.0)
    assert metrics["p_core"].interval.low < metrics["p_core"].value < metrics["p_core"].interval.high
    assert metrics["p_whole"].interval is None
    assert one_rank(began(0), *steps[:19], ended(20))["p_core"].interval is None


def test_periods_leave_out_evaluation_and_logging():
    """An evaluation of 7 s and logging of 1 s stand between steps of one second: the periods stay equal."""
    before, after = steps_of_a_second(10), steps_of_a_second(10, start=18, first=11)
    metrics = one_rank(began(0), *before, logged(10, 11), evaluated(11, 18), *after, ended(28))
    assert (metrics["p_train"].interval.low, metrics["p_train"].interval.high) == pytest.approx((1.0, 1.0))


def test_a_step_takes_as_long_as_on_its_slowest_rank():
    """Rank 0 takes 1 s for every step, rank 1 takes 1 s for the first ten and 1.25 s for the last ten.

    Batches of two steps and four samples: five of 2 and five of 1.6 samples/s, mean 1.8, standard error
    sqrt(10 x 0.04 / 9 / 10) = 1/15, relative half-width 2.262 / 15 / 1.8 = 0.0837778.
    """
    slow = steps_of_a_second(10) + [step(11 + n, 10 + 1.25 * n, 11.25 + 1.25 * n) for n in range(10)]
    files = rank_file(began(0), *steps_of_a_second(20), ended(20)), rank_file(began(0), *slow, ended(22.5), rank=1)
    metrics = metrics_of(make_job([2]), record_of(*files))
    for name in ("p_train", "p_core"):
        assert metrics[name].value == pytest.approx(40 / 22.5)
        assert metrics[name].interval.high / metrics[name].value == pytest.approx(1.0837778)


# --- the unhappy path ----------------------------------------------------------------------------------------------


def test_all_steps_warm_up():
    metrics = one_rank(began(0), *steps_of_a_second(2), warm(2, 2), ended(2), warmup_steps=2)
    assert refused(metrics) == ("not_measured", "all 2 steps were warm-up: no steps are left to measure")
    assert (metrics["steps_kept"].value, metrics["steps_dropped"].value) == (0, 2)
    assert metrics["p_whole_all"].value == 1.0


def test_compute_that_does_not_fit_is_refused():
    metrics = one_rank(began(0), step(1, 0, 2, compute=4.1), logged(2, 3), ended(5))
    reason, detail = refused(metrics)
    assert reason == "invalid_telemetry"
    assert detail == (
        "rank 0: 4100000000 ns of compute do not fit: "
        "the window of 5000000000 ns has 4000000000 ns without evaluation and logging"
    )
    assert metrics["p_whole_all"].value == 0.2
    assert metrics["steps_kept"].value == 1


@pytest.mark.parametrize("compute", [4.000001, 4.00008])
def test_rounding_and_20_ppm_of_drift_are_allowed_and_keep_the_order(compute: float):
    metrics = one_rank(began(0), step(1, 0, 4, compute=compute), ended(4))
    assert metrics["p_whole"].value == metrics["p_train"].value == metrics["p_core"].value == 0.25


def test_waiting_that_does_not_fit_is_refused():
    reason, detail = refused(one_rank(began(0), step(1, 0, 2, wait=5), ended(4)))
    assert reason == "invalid_telemetry"
    assert "waiting for data" in detail


@pytest.mark.parametrize("pauses", [(evaluated(2, 4), logged(3, 5)), (logged(2, 3), logged(2, 3))])
def test_overlapping_pauses_are_refused(pauses):
    reason, detail = refused(one_rank(began(0), step(1, 0, 1), *pauses, ended(9)))
    assert reason == "invalid_telemetry"
    assert "rank 0" in detail and "overlaps" in detail


def test_pauses_that_overlap_outside_the_window_do_no_harm():
    events = [began(0), step(1, 0, 1), evaluated(1, 2), logged(1, 2), warm(2, 1), step(2, 2, 3), ended(3)]
    assert one_rank(*events, warmup_steps=1)["p_whole"].value == 1.0


def test_no_compute_at_all_is_no_throughput():
    assert refused(one_rank(began(0), step(1, 0, 1, compute=0), ended(2)))[0] == "invalid_telemetry"


@pytest.mark.parametrize(
    ("events", "warmup_steps", "word"),
    [
        ([began(2), ended(1)], 0, "out of order"),
        ([began(0), step(1, 0, 2), step(2, 1, 3), ended(4)], 0, "step 2 from"),
        ([began(1), step(1, 0, 2), ended(4)], 0, "step 1 from"),
        ([began(0), step(1, 0, 5), ended(4)], 0, "step 1 from"),
        ([began(0), step(1, 0, 1), step(3, 1, 2), ended(4)], 0, "step 3 after step 1"),
        ([began(0), step(1, 0, 1, samples=-1), ended(4)], 0, "negative"),
        ([began(0), step(1, 0, 1, wait=-1), ended(4)], 0, "negative"),
        ([began(0), step(1, 0, 1), evaluated(3, 2), ended(4)], 0, "before it began"),
        ([began(0), step(1, 0, 1), ended(4), ended(5)], 0, "2 ends of its measured span"),
        ([began(0), began(0), step(1, 0, 1), ended(4)], 0, "2 starts"),
        ([began(0), step(1, 0, 1), warm(1, 1), warm(1, 1), ended(4)], 1, "2 ends of warm-up"),
        ([began(0), *steps_of_a_second(3), warm(1, 1), ended(4)], 2, "training.warmup_steps is 2"),
        ([began(0), *steps_of_a_second(3), warm(1.5, 1), ended(4)], 1, "wrong side"),
        ([began(0), *steps_of_a_second(3), warm(0.5, 1), ended(4)], 1, "wrong side"),
        ([began(0), *steps_of_a_second(3), ended(4)], 1, "recorded no end of warm-up"),
    ],
)
def test_a_stream_out_of_order_is_refused(events, warmup_steps, word):
    reason, detail = refused(one_rank(*events, warmup_steps=warmup_steps), TRAINING)
    assert reason == "invalid_telemetry"
    assert word in detail


def test_ranks_that_did_different_steps_are_refused():
    files = [rank_file(began(0), *steps_of_a_second(3 - r), ended(4), rank=r) for r in (0, 1)]
    reason, detail = refused(metrics_of(make_job([2]), record_of(*files)), TRAINING)
    assert (reason, detail) == ("invalid_telemetry", "rank 1 recorded steps 1 to 2, rank 0 recorded 1 to 3")


def test_no_training_span():
    assert refused(one_rank(), TRAINING)[0] == "not_measured"
    assert refused(one_rank(began(0)), TRAINING)[0] == "not_measured"


def test_missing_ranks_are_named():
    record = record_of(rank_file(began(0), step(1, 0, 1), ended(1), rank=2))
    reason, detail = refused(metrics_of(make_job([4]), record), TRAINING)
    assert (reason, detail) == ("run_failed", "no record of ranks 0, 1, 3: 1 of 4 ranks started")


@pytest.mark.parametrize("ranks", [(0, 0), (0, 7)])
def test_ranks_that_cannot_be_are_refused(ranks):
    files = [rank_file(began(0), step(1, 0, 1), ended(1), rank=rank) for rank in ranks]
    assert refused(metrics_of(make_job([2]), record_of(*files)), TRAINING)[0] == "invalid_telemetry"


def test_no_samples_and_no_tokens():
    metrics = one_rank(MODEL, began(0), step(1, 0, 1, samples=0), ended(1))
    assert metrics["p_core"].reason == "not_measured"
    assert metrics["p_whole_all"].reason == "not_measured"
    assert metrics["token/p/s"].reason == "not_applicable"
    assert metrics["padding_ratio"].reason == "not_applicable"
    assert metrics["mfu"].reason == "not_measured"


# --- marks and units -----------------------------------------------------------------------------------------------


def test_oversubscribed_marks_speeds():
    metrics = two_ranks(oversubscribed=True)
    marked = {name for name, metric in metrics.items() if metric.marks == ("oversubscribed",)}
    assert marked == {
        "p_whole",
        "p_train",
        "p_core",
        "p_whole_all",
        "token/p/s",
        "step_time_p50",
        "step_time_p90",
        "step_time_p99",
        "rank_spread",
    }


def test_a_torn_rank_file_marks_every_value_and_only_values():
    record = record_of(rank_file(began(0), step(1, 0, 1), ended(1), torn=True))
    for metric in metrics_of(make_job(), record).values():
        assert metric.marks == (() if metric.value is None else ("torn_record",))


@pytest.mark.parametrize(
    ("sample_unit", "counts", "unit"), [("images/s", "samples", "images/s"), ("tokens/s", "tokens", "samples/s")]
)
def test_unit_of_the_throughputs(sample_unit, counts, unit):
    record = record_of(rank_file(began(0), step(1, 0, 1), ended(1)))
    metrics = metrics_of(make_job(), record, make_manifest(sample_unit=sample_unit, counts=counts))
    assert metrics["p_core"].unit == metrics["p_whole_all"].unit == unit


def test_the_slowest_rank_is_compared_with_the_median_one():
    """Three ranks need 4, 4 and 6 s for four steps, of which the last waits 2 s for its data."""
    files = []
    for rank, seconds in enumerate((1, 1, 1.5)):
        steps = [step(n, (n - 1) * seconds, n * seconds, wait=seconds - 1) for n in (1, 2, 3, 4)]
        files.append(rank_file(began(0), *steps, ended(4 * seconds), rank=rank))
    spread = metrics_of(make_job([3]), record_of(*files))["rank_spread"]
    assert spread.value == 1.5
    assert spread.inputs == {"rank": 2, "step_seconds": [1.0, 1.0, 1.5], "wait_seconds": [0.0, 0.0, 0.5]}


def test_one_rank_has_no_spread():
    metrics = one_rank(began(0), *steps_of_a_second(2), ended(2))
    assert (metrics["rank_spread"].value, metrics["rank_spread"].reason) == (None, "not_applicable")
