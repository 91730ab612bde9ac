"""Every rule of one run, with the numbers of the published mistake that it is drawn from."""

from __future__ import annotations

import math

import pytest
from doubt_builders import A100, doubts, figure, figure_run, marks, peaks, planned, rules_broken, run_with
from report_builders import GIB, changed, device, job, metric, metrics, recorded

from flagperf.api import precision
from flagperf.bundle.run_record import RecordedRun
from flagperf.event_files import Span
from flagperf.messages import message
from flagperf.metrics.job_times import BUSY_SHARE
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility.doubts import marked
from flagperf.plausibility.row_checks import BUSY_HOST
from flagperf.stats import Interval

CARDS = {f"0/0000:{slot:02x}:00.0": 1.0 for slot in range(8)}


def test_a_good_run_has_no_doubt():
    assert doubts(recorded()) == []


# --- speed and peaks ------------------------------------------------------------------------------------------------


def too_fast(rate: float, flops: int, row: str = "fp32", **card: float):
    """MFU as its formula withholds it."""
    why = message("flops.above_peak", figures="x")
    inputs = {"tokens_per_second_per_device": rate, "flops_per_token": flops, "peak": card.get(row)}
    absent = metric("mfu", None, reason="invalid_telemetry", message=why, inputs=inputs)
    plan = planned(peaks=peaks(**card), precision=precision(row))
    return run_with(absent, plan=plan, tflops_per_device=None)


def test_287_samples_of_distilbert_are_not_fp32_on_an_a100():
    run = too_fast(287.9 * 512, 283_115_520, **A100)
    said = "41.73 TFLOP/s on each device are above the fp32 peak of 19.5, and within the tf32 peak of 156"
    assert doubts(run) == [f"tf32_called_fp32: {said}"]
    assert marks(run, "p_core") == ("tf32_called_fp32",)
    assert marks(run, "p_whole") == ("tf32_called_fp32",)
    assert marks(run, "e2e_time") == ()


def test_what_no_other_precision_explains_is_above_the_peak():
    assert rules_broken(too_fast(400e3, 10**9, "fp16", **A100)) == {"above_peak"}
    assert rules_broken(too_fast(200e3, 10**9, "fp32", fp32=19.5e12)) == {"above_peak"}


def test_few_steps_a_wide_interval_throttling_and_a_loss_that_is_no_number():
    assert doubts(run_with(steps_kept=5)) == ["few_repeats: 5 steps were kept; an interval needs 20"]
    wide = metric("p_core", 1755.55, interval=Interval(1600.0, 1911.0, "batch_means_95"))
    assert marks(run_with(wide), "p_core") == ("unsteady",)
    hot = metric("throttled_share", 0.25, inputs={"reasons": {"heat": 30}, "device_id": "a"})
    assert doubts(run_with(hot)) == ["throttled: device a reported throttling in 25.0% of the samples: heat (30)"]
    assert marks(run_with(hot), "p_core") == ("throttled",)
    assert rules_broken(run_with(metric("throttled_share", 0.04))) == set()
    gone = metric("loss", None, reason="not_measured", message=message("quality.diverged", step=8))
    assert doubts(run_with(gone)) == ["diverged: training diverged: the loss of step 8 is not a finite number"]
    assert marks(run_with(gone), "token/p/s") == ("diverged",)


@pytest.mark.parametrize(
    ("values", "rule", "name"),
    [
        ({"p_core": 1700.0}, "throughput_order", "p_core"),
        ({"e2e_time": 400.0}, "window_longer_than_run", "e2e_time"),
        ({"p_whole": 0.0}, "window_longer_than_run", "p_whole"),
        ({"acc": 80.52}, "out_of_range", "acc"),
        ({"mem_used": 65 * GIB}, "out_of_range", "mem_used"),
        ({"mem_total": 60 * GIB}, "total_is_not_capacity", "mem_total"),
        ({"mfu": 6.5278}, "utilisation_over_100", "mfu"),
        ({"mfu": 0.25}, "mfu_does_not_follow", "mfu"),
        ({"mfu": 0.0}, "share_not_positive", "mfu"),
        ({"loss": math.inf}, "not_finite", "loss"),
    ],
)
def test_figures_that_contradict_each_other_are_marked(values, rule, name):
    assert rule in marks(run_with(**values), name)


# --- figures of rows ------------------------------------------------------------------------------------------------


def gemm(name: str, value: float, peak: float, share: float | None = None, shape: str = "8192x8192x8192"):
    share = value * 1e12 / peak if share is None else share
    labels = {"shape": shape, "precision": name}
    inputs = {"row": "gemm", "labels": labels, "per_device": {"0/a": value}, "peak": peak, "share": share}
    return metric(name, value, inputs=inputs)


def row(name: str, flops: int = 2 * 8192**3, **fields) -> MeasuredRow:
    labels = {"shape": "8192x8192x8192", "precision": name}
    made = MeasuredRow(
        "gemm", labels, "s", median=0.01, work={"flops": flops}, num_repeats=100, calls=1, total_calls=100
    )
    return changed(made, **fields)


def test_a_rated_value_of_minus_one():
    rated = figure_run([(figure("gemm_int16"), gemm("gemm_int16", 0.2261, -1e12))])
    assert doubts(rated) == ["share_not_positive: gemm_int16 is -22.6% of a rated value of -1e+12"]


def test_int8_at_12_percent_where_the_problem_is_large():
    def run(flops):
        found = gemm("gemm_int8", 76.04, 624e12)
        return figure_run([(figure("gemm_int8", "TOPS"), found)], (row("gemm_int8", flops),))

    assert doubts(run(2 * 8192**3)) == ["far_below_peak: gemm_int8 is 12.2% of the rated value, less than 25.0%"]
    assert doubts(run(2 * 512**3)) == []


def test_a_ratio_that_is_not_the_quotient_of_its_numbers():
    found = metric(
        "memory_copy",
        1390.5,
        inputs={"row": "copy", "labels": {}, "per_device": {"0/a": 1}, "peak": 1.8e12, "share": 0.7544},
    )
    run = figure_run([(figure("memory_copy", "GB/s", "bytes"), found)])
    said = "ratio_does_not_recompute: memory_copy: 75.4% is stated, but 1390 GB/s of 1800 GB/s is 77.2%"
    assert [text.replace("1391 GB/s", "1390 GB/s") for text in doubts(run)] == [said]


def test_more_than_the_memory_can_move():
    found = metric("triu", 1617.0, inputs={"row": "copy", "labels": {}, "per_device": {"0/a": 1}, "peak": 1555e9})
    run = figure_run([(figure("triu", "GB/s", "bytes"), found)])
    assert doubts(run) == ["above_bandwidth: triu is 1617 GB/s, the rated bandwidth is 1555 GB/s"]
    fast = MeasuredRow("triu", {"dtype": "fp32"}, "s", median=1.0, roofline=1.04, bound_by="bytes")
    (shown,) = marked([figure_run([], (fast,))])
    assert shown.run.rows[0].marks == ("above_bandwidth",)


def test_65_of_64_gib_is_more_than_there_is_and_may_be_gb():
    found = metric("usable_memory", 65.25, inputs={"row": "memory", "labels": {}, "per_device": {"0/a": 65.25}})
    run = figure_run([(figure("usable_memory", "GiB", "value"), found)])
    assert doubts(run) == [
        "over_capacity: usable_memory: 65.25 of 64.00 GiB",
        "decimal_unit: usable_memory: 65.25 of 64.00 GiB; taken as GB it is 60.77 GiB",
    ]
    assert marks(run, "usable_memory") == ("over_capacity", "decimal_unit")


def test_five_calls_and_a_warm_up_that_never_settled():
    found = [(figure("gemm_bf16"), gemm("gemm_bf16", 196.77, 400e12))]
    few = figure_run(found, (row("gemm_bf16", num_repeats=5),))
    assert doubts(few) == ["few_repeats: gemm_bf16 has 5 repeats; 30 are needed"]
    (shown,) = marked([few])
    assert shown.run.rows[0].marks == ("few_repeats",)
    assert doubts(figure_run(found, (row("gemm_bf16", settled=False),))) == [
        "unsteady: the warm-up of gemm_bf16 never settled"
    ]


# --- rows -----------------------------------------------------------------------------------------------------------


def rows_run(*rows: MeasuredRow, others: float = 0.0, scope: str = "host"):
    plan = changed(job(devices=1), memory_scope=scope)
    return figure_run([], rows, plan, cpu_others=metric("cpu_others", others))


def marks_of_rows(run) -> list[tuple[str, ...]]:
    return [each.marks for each in marked([run])[0].run.rows]


def test_rows_of_no_figure_are_marked_and_counted_in_one_line():
    few = rows_run(row("fp32", num_repeats=3), row("fp16", num_repeats=29), row("bf16", num_repeats=30))
    assert doubts(few) == ["few_repeats: 2 of 3 rows have fewer than 30 repeats that count, down to 3"]
    assert marks_of_rows(few) == [("few_repeats",), ("few_repeats",), ()]


def test_rows_that_never_settled_or_have_a_wide_interval_on_one_side_are_one_line():
    wide = row("fp16", interval=Interval(0.0099, 0.0106, "batch_medians_95"))
    near = row("bf16", interval=Interval(0.0096, 0.0104, "batch_medians_95"))
    both = rows_run(row("fp32", settled=False), wide, near)
    assert doubts(both) == [
        "unsteady: of 3 rows, the warm-up of 1 never settled, and the 95 % interval of 1 reaches more than 5.0% from "
        "the median, up to 6.0%"
    ]
    assert marks_of_rows(both) == [("unsteady",), ("unsteady",), ()]
    assert doubts(rows_run(wide, near)) == [
        "unsteady: 1 of 2 rows: the 95 % interval reaches more than 5.0% from the median, up to 6.0%"
    ]
    assert doubts(rows_run(row("fp32", settled=False), near)) == ["unsteady: 1 of 2 rows: the warm-up never settled"]


def test_a_busy_host_marks_the_rows_that_were_timed_where_its_cores_are_the_devices():
    size = MeasuredRow("memory", {}, "bytes", median=2.0**30)
    busy = rows_run(row("fp32"), size, others=0.7)
    assert doubts(busy) == [
        "busy_host: other processes used 70.0% of the cores, more than 10.0%, while rows were measured: 1"
    ]
    assert marks_of_rows(busy) == [("busy_host",), ()]
    assert doubts(rows_run(row("fp32"), others=0.1)) == []
    assert doubts(rows_run(row("fp32"), others=0.7, scope="device")) == []
    assert BUSY_HOST.limits["share"] == BUSY_SHARE


def test_a_throttled_card_marks_the_rows_that_were_timed():
    size = MeasuredRow("memory", {}, "bytes", median=1.0)
    hot = metric("throttled_share", 0.25, inputs={"reasons": {"heat": 30}, "device_id": "a"})
    run = figure_run([], (row("fp32"), size), throttled_share=hot)
    assert doubts(run) == ["throttled: device a reported throttling in 25.0% of the samples: heat (30)"]
    assert marks_of_rows(run) == [("throttled",), ()]


def test_rows_that_failed_or_have_no_time_have_no_such_doubt():
    failed = row("fp32", median=None, status="error", settled=False, num_repeats=0)
    assert doubts(rows_run(failed, MeasuredRow("memory", {}, "bytes", median=1.0, settled=False), others=0.7)) == []


def test_a_row_of_another_device_is_counted_where_only_the_first_has_a_figure():
    found = [(figure("gemm_bf16"), gemm("gemm_bf16", 196.77, 400e12))]
    run = figure_run(found, (row("gemm_bf16"), row("gemm_bf16", rank=1, num_repeats=5)))
    assert doubts(run) == ["few_repeats: 1 of 2 rows have fewer than 30 repeats that count, down to 5"]
    assert marks_of_rows(run) == [(), ("few_repeats",)]


# --- rows that differ -----------------------------------------------------------------------------------------------


def test_a_precision_that_changes_nothing():
    same = [
        (figure("gemm_fp32", precision="fp32"), gemm("gemm_fp32", 127.1, 156e12)),
        (figure("gemm_fp16", precision="fp16"), gemm("gemm_fp16", 127.3, 312e12)),
    ]
    assert doubts(figure_run(same)) == [
        "same_in_every_precision: gemm_fp32, gemm_fp16 have the same figure: 127.1, 127.3"
    ]
    rows = tuple(
        MeasuredRow("all", {"dtype": dtype}, "s", median=median, work={"bytes": size}, share=0.9, bound_by="bytes")
        for dtype, median, size in (("fp32", 5811.20e-6, 4 << 30), ("fp16", 5810.18e-6, 2 << 30))
    )
    (shown,) = marked([figure_run([], rows)])
    assert {each.marks for each in shown.run.rows} == {("same_in_every_precision",)}


def test_a_row_that_was_withheld_says_which_rule():
    why = message(
        "figure.problem", status="invalid", why="652% of the card's peak for fp32: it computes something else"
    )
    absent = metric("gemm_fp32", None, reason="invalid_telemetry", message=why)
    assert doubts(figure_run([(figure("gemm_fp32"), absent)])) == [f"wrong_output: {why}"]


# --- memory and telemetry -------------------------------------------------------------------------------------------


def test_a_total_in_gb_of_a_capacity_in_gib():
    assert "decimal_unit" in rules_broken(run_with(mem_total=64e9, mem_used=37e9))
    assert "decimal_unit" not in rules_broken(run_with(mem_total=60 * GIB))


def test_eight_ranks_on_one_card():
    held = metric("mem_remainder", 27 * GIB, inputs={"per_device": {**CARDS, "0/0000:00:00.0": 27 * GIB}})
    own = metric("mem_allocator", 4 * GIB, inputs={"per_device": dict.fromkeys(CARDS, 4 * GIB)})
    assert doubts(run_with(held, own)) == [
        "memory_of_others: card 0/0000:00:00.0 holds 27.0 GiB beside the 4.0 GiB of its worker's allocator"
    ]


def test_marks_of_formulas_are_doubts_with_their_numbers():
    gap = metric("mem_used", 37 * GIB, marks=("telemetry_gap",), inputs={"largest_gap_seconds": 120.0})
    assert doubts(run_with(gap)) == ["telemetry_gap: mem_used: the longest time without a sample is 120 s"]
    over = metric("mem_used", 65.25 * GIB, marks=("over_capacity",))
    assert "over_capacity: mem_used: 65.25 of 64.00 GiB" in doubts(run_with(over))
    energy = metric("energy", 1.0, marks=("energy_mismatch",))
    assert rules_broken(run_with(energy)) == {"energy_mismatch"}


def power(name: str, watts: float, samples: int = 600, gap: float = 1.0, cards=CARDS):
    inputs = {"num_samples": samples, "largest_gap_seconds": gap, "per_device": dict.fromkeys(cards, watts)}
    return metric(name, watts, inputs=inputs)


def test_two_samples_of_120_seconds():
    run = run_with(power("power_mean", 335.4, samples=2, gap=120.0))
    assert doubts(run) == [
        "sparse_telemetry: power_mean have 2 samples in the measured window (at least 20), the longest gap is 120 s "
        "(at most 3)"
    ]


def test_a_mean_above_the_maximum():
    run = run_with(power("power_mean", 105.9), power("power_max", 105.0))
    assert rules_broken(run) == {"mean_above_max"}
    assert marks(run, "power_mean") == marks(run, "power_max") == ("mean_above_max",)


def test_more_than_the_tdp_and_less_than_the_work_needs():
    plan = planned(peaks=peaks(tdp=350.0))
    assert doubts(run_with(power("power_max", 492.8), plan=plan)) == [
        "over_tdp: power_max is 492.8 W on a card of 350 W"
    ]
    board = changed(power("power_max", 492.8), marks=("whole_board",))
    assert doubts(run_with(board, plan=plan)) == []
    idle = [(figure("gemm_int8", "TOPS"), gemm("gemm_int8", 79.3, 100e12))]
    cards = {"0/0000:00:00.0": 1.0}
    run = figure_run(idle, plan=job(devices=1, peaks=peaks(tdp=450.0)), power_max=power("power_max", 57.0, cards=cards))
    assert doubts(run) == ["idle_power: 79.3% of the peak with at most 57.0 of 450 W"]


def test_cards_that_were_not_planned():
    run = run_with(power("power_mean", 300.0, cards=[*list(CARDS)[1:], "0/other"]))
    assert doubts(run) == [
        "device_set_changed: power_mean: cards that were planned and not read: 0/0000:00:00.0; "
        "read and not planned: 0/other"
    ]


def test_devices_that_were_never_sampled_and_uneven_nodes():
    short = metric("mem_used", 37 * GIB, inputs={"per_device": dict.fromkeys(list(CARDS)[:2], 1)})
    assert rules_broken(run_with(short)) == {"devices_incomplete", "device_set_changed"}
    plan = job(nodes=2)
    plan = changed(plan, nodes=(plan.nodes[0], changed(plan.nodes[1], devices=(device(0),))))
    assert "devices_incomplete" in rules_broken(recorded(plan=plan))


@pytest.mark.parametrize(
    ("name", "code", "params", "rule"),
    [
        ("mem_used", "memory.peak_not_positive", {"card": "a", "used": 0}, "memory_not_possible"),
        ("energy", "power.few_samples", {"card": "a", "count": 2, "needed": 60}, "energy_too_sparse"),
        ("utilisation_mean", "power.bad_utilisation", {"card": "a", "low": 0, "high": 652}, "utilisation_not_possible"),
        ("power_mean", "power.negative", {"card": "a", "value": -1}, "power_not_possible"),
        (
            "acc",
            "quality.out_of_range",
            {"name": "acc", "value": "1.009", "low": "0", "high": "1"},
            "quality_out_of_range",
        ),
    ],
)
def test_values_that_a_formula_withheld(name, code, params, rule):
    absent = metric(name, None, reason="invalid_telemetry", message=message(code, **params))
    assert rules_broken(run_with(absent)) >= {rule}


def test_utilisation_of_zero_while_it_computed():
    run = run_with(power("utilisation_mean", 0.0))
    assert marks(run, "utilisation_mean") == ("share_not_positive",)


def test_a_probe_that_reads_652_percent():
    odd = metric("mem_used", 37 * GIB, marks=("implausible_utilisation",))
    assert rules_broken(run_with(odd)) == {"implausible_utilisation"}


# --- several runs ---------------------------------------------------------------------------------------------------


def test_4058_samples_on_what_is_called_8_cards():
    def run(name, devices, p_core):
        return recorded(name, plan=job(devices=devices), figures={"p_core": metric("p_core", p_core)})

    one, eight, sixteen = run("one", 1, 287.9), run("eight", 8, 4058.3), run("sixteen", 16, 4058.3)
    assert doubts(eight, one) == ["scaling_over_100: p_core on 8 devices is 176.2% of what 1 in one make expect"]
    assert doubts(sixteen, one) == []
    other = run("other", 8, 4058.3)
    assert doubts(other) == []


def test_a_run_that_is_a_copy_of_another():
    first, second = recorded("a"), recorded("b")
    assert doubts(first, second) == ["identical_figures: e2e_time, p_core are those of b to the last digit"]
    other = recorded("c", figures=metrics(e2e_time=421.0, p_core=1755.55))
    assert doubts(first, other) == []


# --- applying -------------------------------------------------------------------------------------------------------


def test_marking_twice_changes_nothing():
    once = marked([run_with(steps_kept=5, p_core=1700.0)])
    assert marked(once) == once


def test_a_missing_value_is_not_marked():
    run = run_with(metric("p_core", None, reason="not_measured"), steps_kept=5)
    assert marks(run, "p_core") == ()
    assert marks(run, "p_train") == ("few_repeats",)


# --- all devices at once --------------------------------------------------------------------------------------------


def at_once_run(*windows: tuple[int, int]) -> RecordedRun:
    labels = {"precision": "fp32", "devices": "all"}
    rows = tuple(
        MeasuredRow("gemm", labels, "s", rank=rank, median=1.0, window=Span(began, ended))
        for rank, (began, ended) in enumerate(windows)
    )
    found = metric("gemm_fp32_all", 1.0, inputs={"row": "gemm", "labels": labels})
    return figure_run([(figure("gemm_fp32_all", precision="fp32", devices="all"), found)], rows, job(devices=2))


def test_devices_that_were_measured_one_after_the_other_were_not_measured_at_once() -> None:
    """Windows of 250 ms as they were once recorded: not a moment in common."""
    apart = at_once_run((434_930, 435_181), (434_615, 434_871))
    assert rules_broken(apart) == {"not_at_once"}
    assert marks(apart, "gemm_fp32_all") == ("not_at_once",)
    assert [row.marks for row in marked([apart])[0].run.rows] == [("not_at_once",)] * 2


def test_a_tail_that_one_device_measured_alone_is_within_the_rule() -> None:
    assert rules_broken(at_once_run((0, 100), (2, 105))) == set()
    assert rules_broken(at_once_run((0, 100), (2, 120))) == {"not_at_once"}


def test_nodes_have_clocks_of_their_own() -> None:
    windows = at_once_run((0, 100), (0, 100), (5000, 5100), (5000, 5100))
    assert rules_broken(windows) == set()
