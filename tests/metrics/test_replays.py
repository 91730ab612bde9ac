"""Recorded streams to exact numbers. The records stand in tests/replays."""

from pathlib import Path

import pytest
from metric_builders import GIB, make_job, metrics_of

from flagperf.event_files import EventFiles, read_events
from flagperf.metrics.entry import Record

REPLAYS = Path(__file__).parent.parent / "replays"
JOB = make_job([2], warmup_steps=2)

POWER = (
    "power_mean",
    "power_max",
    "energy",
    "energy_per_sample",
    "energy_per_token",
    "utilisation_mean",
    "clock_mean",
    "temperature_max",
    "throttled_share",
)
"""The probe of these records reads memory alone."""

FINISHED = (
    "e2e_time",
    "train_time",
    "p_whole",
    "p_train",
    "p_core",
    "p_whole_all",
    "token/p/s",
    "step_time_p50",
    "step_time_p90",
    "step_time_p99",
    "data_wait_share",
    "rank_spread",
    "padding_ratio",
    "steps_kept",
    "steps_dropped",
    "samples_kept",
    "tflops_per_device",
    "mfu",
    "mfu_useful",
    "mfu_nominal-6n",
    "mfu_nominal-2n",
    "mfu_palm",
    "mem_allocator",
    "mem_remainder",
    "loss",
    "loss_first",
    "acc",
    "target",
)
"""What only a run that was finished has."""

OBSERVED = ("init_time", "mem_used", "mem_total", "mem_baseline", "probe_cost", "cpu_others")
"""What is known of a run that failed as well."""


def replay_record(name):
    folder = REPLAYS / name
    return Record(
        parent=read_events(folder / "events" / "parent.jsonl"),
        ranks=tuple(EventFiles(folder.glob("events/rank-*.jsonl"))),
        samples=tuple(EventFiles(folder.glob("samples/node-*.jsonl"))),
    )


def replay(name):
    return metrics_of(JOB, replay_record(name))


# Two ranks, two warm-up steps, then eight steps of one second each from 115 to 119 and from 122 to 126 s, with 0.5 s
# of logging and 2.5 s of evaluation between. Four samples per rank and step, in the last one 3 and 1; 10 tokens and
# 6 positions of padding per sample. Rank 0 computes 0.5 0.5 0.75 0.75 0.75 0.75 1 1 s and waits for the rest of each
# second; rank 1 computes 0.5 s and waits 0.125 s in each.
CLEAN = {
    "e2e_time": 1041 - 1001,
    "init_time": 112 - 101,  # rank 1 begins last
    "train_time": 126 - 111,  # rank 0
    "p_whole": 60 / 11,  # 7 x 8 + 4 samples; W = 126 - 115
    "p_train": 60 / 8,  # 11 - 0.5 - 2.5
    "p_core": 60 / 6,  # 2 x 0.5 + 4 x 0.75 + 2 x 1
    "p_whole_all": 76 / 15,  # 2 x 8 warm-up samples more
    "token/p/s": 600 / 8 / 2,
    "step_time_p50": 0.75,  # the 4th of 8
    "step_time_p90": 1.0,  # the 8th: 0.9 x 8 = 7.2
    "step_time_p99": 1.0,
    "data_wait_share": 2 / 8,  # rank 0: 2 x 0.5 + 4 x 0.25
    "rank_spread": 1.0,  # both take 8 s for 8 steps
    "padding_ratio": 6 / 16,
    "steps_kept": 8,
    "steps_dropped": 2,
    "samples_kept": 60,
    "tflops_per_device": 80 * 6000 / 1e12,  # 960 positions / 6 s / 2 devices; 6 x 680 + 12 x 10 x 16 = 6000 FLOPs
    "mfu": 0.48,  # 480,000 of 1e6
    "mfu_useful": 0.30,  # 600 / 6 / 2 x 6000 / 1e6
    "mfu_nominal-2n": 0.144,  # 80 x 2 x 900 / 1e6
    "mfu_palm": 0.6336,  # 80 x (6 x 1000 + 1920) / 1e6
    "mfu_nominal-6n": 0.432,  # 80 x 6 x 900 / 1e6
    "mem_used": 10 * GIB,
    "mem_total": 16 * GIB,
    "mem_baseline": 1 * GIB,
    "mem_allocator": 8 * GIB,
    "mem_remainder": 2 * GIB,  # rank 0's card: 10 - 8
    **dict.fromkeys(POWER),
    "probe_cost": 0.01,  # 0.4 of 40 s
    "cpu_others": 0.125,  # of 2 cores 1.5 busy, 1.25 with our own
    "loss": 0.6,  # (0.5 x 3 + 0.9 x 1) / 4
    "loss_first": 2.5,  # (2 x 4 + 3 x 4) / 8
    "acc": 0.8,
    "target": 1,  # 0.8 >= 0.75
}


def test_clean_2_ranks():
    metrics = replay("clean-2-ranks")
    assert {name: metric.value for name, metric in metrics.items()} == pytest.approx(CLEAN)
    assert list(metrics) == list(CLEAN)
    assert {metric.marks for metric in metrics.values()} == {()}
    assert metrics["mem_used"].inputs["device_id"] == "card-0"
    assert metrics["mem_used"].inputs["largest_gap_seconds"] == 10.0


def test_one_rank_dead():
    """Rank 1 stops after step 5; rank 0 notices and fails. What was seen until then stays: 10 GiB at 122 s."""
    metrics = replay("one-rank-dead")
    why = "ranks 0, 1 did not succeed: rank 0 ended as failed (RuntimeError: connection closed by peer)"
    assert {(metrics[name].value, metrics[name].reason, metrics[name].detail) for name in FINISHED[:25]} == {
        (None, "run_failed", why)
    }
    assert metrics["acc"].reason == metrics["target"].reason == "run_failed"
    assert [metrics[name].value for name in OBSERVED] == [11, 10 * GIB, 16 * GIB, GIB, 0.01, 0.125]
    assert set(metrics) == {*FINISHED, *OBSERVED, *POWER}


def test_torn_last_line():
    """Rank 1 was killed while it wrote its end: it is not known to have succeeded, and what is known is marked."""
    metrics = replay("torn-last-line")
    assert {(metrics[name].value, metrics[name].reason) for name in FINISHED} == {(None, "run_failed")}
    assert metrics["p_core"].detail == "rank 1 did not succeed: the record of rank 1 stops after step 10"
    assert {(metrics[name].value is None, metrics[name].marks) for name in OBSERVED} == {(False, ("torn_record",))}


def test_empty():
    """Files were opened and nothing was written."""
    metrics = replay("empty")
    assert {metrics[name].value for name in metrics} == {None}
    assert {metrics[name].reason for name in FINISHED} == {"run_failed"}
    assert {metrics[name].reason for name in POWER} == {"run_failed"}
    assert metrics["p_core"].detail == "no record of ranks 0, 1: 0 of 2 ranks started"
    assert metrics["init_time"].reason == "run_failed"
    assert {metrics[name].reason for name in OBSERVED[1:]} == {"not_measured"}
