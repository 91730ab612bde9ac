"""Consistency rules for the figures of a run, checked before a page is written. A missing figure breaks no rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from flagperf import units
from flagperf.errors import BadInput
from flagperf.report.sections.cells import has_results
from flagperf.store.run import RecordedRun, Run

SLACK = 1e-9
"""Relative tolerance for floating-point rounding."""

MFU_TOLERANCE = 0.0005
"""0.05 percentage points: the rounding error of a percentage printed with one decimal."""

MEMORY_TOLERANCE = 0.01
"""A vendor's library and tool may round one card's capacity differently (bytes, whole MiB)."""


def check_figures(runs: Sequence[RecordedRun]) -> None:
    """Raise one BadInput that lists every broken rule with its run and figures."""
    broken = [
        f"run {recorded.run.id}: {problem}"
        for recorded in runs
        if has_results(recorded.run)
        for rule in RULES
        for problem in rule(recorded.run)
    ]
    if broken:
        raise BadInput(f"no page was written because figures contradict each other: {'; '.join(broken)}")


def _value(run: Run, name: str) -> float | None:
    metric = run.metric(name)
    return None if metric is None else metric.value


def _all_are_finite(run: Run) -> Iterator[str]:
    for metric in run.metrics:
        if metric.value is not None and not math.isfinite(metric.value):
            yield f"every value is finite: {metric.name} is {metric.value}"


def _throughputs_nest(run: Run) -> Iterator[str]:
    for higher, lower in (
        ("p_core", "p_train"),
        ("p_train", "p_whole"),
        ("p_core", "p_whole"),
        ("p_infer_core", "p_infer_whole"),
    ):
        more, less = _value(run, higher), _value(run, lower)
        if more is not None and less is not None and more < less * (1 - SLACK):
            yield f"{higher} >= {lower}: {higher} is {more:.6g}, {lower} is {less:.6g}"


def _window_fits_into_the_run(run: Run) -> Iterator[str]:
    samples, speed, whole = _value(run, "samples_kept"), _value(run, "p_whole"), _value(run, "e2e_time")
    if samples is None or speed is None or whole is None:
        return
    if speed <= 0:
        yield f"p_whole > 0: p_whole is {speed:.6g}"
    elif samples / speed > whole * (1 + SLACK):
        yield (
            f"samples / p_whole <= e2e_time: {units.count(samples)} / {speed:.6g} is {samples / speed:.6g} s, "
            f"e2e_time is {whole:.6g} s"
        )


def _qualities_are_in_range(run: Run) -> Iterator[str]:
    for quality in run.manifest.qualities:
        is_share = quality.format == "fraction"
        low = quality.minimum if quality.minimum is not None else (0.0 if is_share else -math.inf)
        high = quality.maximum if quality.maximum is not None else (1.0 if is_share else math.inf)
        value = _value(run, quality.name)
        if value is not None and not low <= value <= high:
            yield f"{low:g} <= {quality.name} <= {high:g}: {quality.name} is {value:.6g}"


def _memory_is_possible(run: Run) -> Iterator[str]:
    used, total = _value(run, "mem_used"), _value(run, "mem_total")
    if used is None or total is None:
        return
    if not 0 < used <= total:
        yield f"0 < used <= total memory: used {units.count(used)} bytes, total {units.count(total)} bytes"
    capacity = run.job.device_model.memory_bytes
    is_card_memory = run.job.memory_scope == "device"
    if is_card_memory and capacity is not None and abs(total - capacity) > capacity * MEMORY_TOLERANCE:
        yield (
            f"total memory = capacity of the device: the probe reports {units.count(total)} bytes, "
            f"the device record has {units.count(capacity)} bytes"
        )


def _devices_are_complete(run: Run) -> Iterator[str]:
    counts = [len(node.devices) for node in run.job.nodes]
    if len(set(counts)) != 1 or counts[0] == 0:
        yield f"devices = nodes x devices per node: the nodes have {', '.join(map(str, counts))} devices"
    used = run.metric("mem_used")
    num_sampled = len(used.inputs.get("per_device", ())) if used else 0
    if num_sampled and num_sampled != run.job.world_size:
        yield f"every device was sampled: only {num_sampled} of {run.job.world_size} were"


def _mfu_is_possible(run: Run) -> Iterator[str]:
    mfu, speed = run.metric("mfu"), _value(run, "tflops_per_device")
    if mfu is None or mfu.value is None:
        return
    if not 0 <= mfu.value <= 1:
        yield f"0 % <= mfu <= 100 %: mfu is {units.percent(mfu.value)}"
    peak = run.job.peak
    if speed is None or peak is None:
        return
    share = speed * 1e12 / peak.value
    if abs(mfu.value - share) > MFU_TOLERANCE:
        yield (
            f"mfu = FLOP/s / peak: mfu is {mfu.value:.2%}, but {speed:.6g} TFLOP/s over "
            f"{units.teraflops(peak.value)} TFLOP/s is {share:.2%}"
        )


RULES: tuple[Callable[[Run], Iterator[str]], ...] = (
    _all_are_finite,
    _throughputs_nest,
    _window_fits_into_the_run,
    _qualities_are_in_range,
    _memory_is_possible,
    _devices_are_complete,
    _mfu_is_possible,
)
