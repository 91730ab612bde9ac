"""Samples and tokens per second, the times of steps, and what was counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flagperf.metrics.finding import Absent, Finding, Findings, Found
from flagperf.metrics.interval import batch_means
from flagperf.metrics.training import Training
from flagperf.metrics.window import RankWindow, Window

SECOND_NS = 1_000_000_000

RATES = ("p_whole", "p_train", "p_core", "token/p/s")
STEP_TIMES = {"step_time_p50": 50, "step_time_p90": 90, "step_time_p99": 99}
COUNTS = ("p_whole_all", "steps_kept", "steps_dropped", "samples_kept")


def rates(window: Window | Absent, num_devices: int) -> Findings:
    if isinstance(window, Absent):
        return dict.fromkeys(RATES, window)
    samples = window.per_step(lambda step: step.samples)
    tokens = window.per_step(lambda step: step.tokens)
    timing = {"timing": ", ".join(window.timing)}
    return {
        "p_whole": throughput(window, samples, lambda rank: rank.whole_ns),
        "p_train": throughput(window, samples, lambda rank: rank.train_ns, window.step_periods_ns),
        "p_core": throughput(window, samples, lambda rank: rank.core_ns, window.step_computes_ns, inputs=timing),
        "token/p/s": _tokens_per_device(window, tokens, num_devices),
    }


def no_rates(why: Absent) -> Findings:
    return dict.fromkeys((*RATES, "p_whole_all"), why)


def step_times(window: Window | Absent) -> Findings:
    if isinstance(window, Absent):
        return dict.fromkeys(STEP_TIMES, window)
    ordered = sorted(window.step_computes_ns)
    return {name: Found(nearest_rank(ordered, percent) / SECOND_NS) for name, percent in STEP_TIMES.items()}


def counts(training: Training | Absent) -> Findings:
    """What needs no window: also there where all steps were warm-up."""
    if isinstance(training, Absent):
        return dict.fromkeys(COUNTS, training)
    return {
        "p_whole_all": _all_steps(training),
        "steps_kept": Found(training.steps_kept),
        "steps_dropped": Found(training.steps_dropped),
        "samples_kept": Found(sum(step.samples for rank in training.ranks for step in rank.kept)),
    }


def shares(window: Window | Absent) -> Findings:
    if isinstance(window, Absent):
        return dict.fromkeys(("data_wait_share", "padding_ratio"), window)
    return {"data_wait_share": _data_wait(window), "padding_ratio": _padding(window)}


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that `percent` of all values do not exceed: always a value that was measured."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def throughput(
    window: Window,
    counts: Sequence[int],
    duration_ns: Callable[[RankWindow], int],
    step_durations_ns: Sequence[int] = (),
    num_devices: int = 1,
    inputs: dict[str, Any] | None = None,
) -> Finding:
    longest = max(window.ranks, key=duration_ns)
    seconds = duration_ns(longest) / SECOND_NS
    count = sum(counts)
    if not count:
        return Absent("not_measured", "the kept steps counted no samples")
    value = count / seconds / num_devices
    interval = batch_means(value, counts, step_durations_ns) if step_durations_ns else None
    return Found(value, {"count": count, "seconds": seconds, "rank": longest.rank, **(inputs or {})}, interval)


def _tokens_per_device(window: Window, tokens: Sequence[int], num_devices: int) -> Finding:
    if not any(tokens):
        return Absent("not_applicable", "the case counts no tokens")
    devices = {"devices": num_devices}
    return throughput(window, tokens, lambda rank: rank.train_ns, window.step_periods_ns, num_devices, devices)


def _all_steps(training: Training) -> Finding:
    samples = sum(step.samples for rank in training.ranks for step in (*rank.dropped, *rank.kept))
    longest = max(training.ranks, key=lambda rank: rank.span.length_ns)
    seconds = longest.span.length_ns / SECOND_NS
    if not samples or not seconds:
        return Absent("not_measured", f"{samples} samples were counted in {seconds} s of training")
    return Found(samples / seconds, {"count": samples, "seconds": seconds, "rank": longest.rank})


def _data_wait(window: Window) -> Finding:
    waiting = max(window.ranks, key=lambda rank: rank.wait_ns / rank.train_ns)
    return Found(min(1.0, waiting.wait_ns / waiting.train_ns), {"rank": waiting.rank})


def _padding(window: Window) -> Finding:
    if not window.positions:
        return Absent("not_applicable", "the case counts no tokens")
    padded = window.positions - window.tokens
    return Found(padded / window.positions, {"tokens": window.tokens, "padded_tokens": padded})
