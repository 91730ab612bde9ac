"""Throughput of a training loop, and step times and counts of any loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf import units
from flagperf.kinds import Text
from flagperf.metrics.entry import (
    SPEED,
    Absent,
    Finding,
    Formula,
    Found,
    MetricEntry,
    absent,
    samples_per_second,
    speed_entry,
    work_per_second,
)
from flagperf.metrics.observed import Observed
from flagperf.stats import batch_means, median
from flagperf.units import SECOND_NS

if TYPE_CHECKING:
    from flagperf.metrics.observed import Loop, Window
    from flagperf.metrics.rank_record import RankWindow


def of_window(formula: Callable[[Window, Observed], Finding]) -> Formula:
    """A formula that needs the window. Absent, with the same reason, if the window is absent."""

    def guarded(run: Observed) -> Finding:
        return run.window if isinstance(run.window, Absent) else formula(run.window, run)

    return guarded


def of_loop(formula: Callable[[Loop], Finding]) -> Formula:
    """A formula that needs only the loop: it has a value even if all steps were warm-up."""

    def guarded(run: Observed) -> Finding:
        return run.loop if isinstance(run.loop, Absent) else formula(run.loop)

    return guarded


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
        return absent("not_measured", "throughput.no_samples")
    value = count / seconds / num_devices
    interval = batch_means(value, counts, step_durations_ns) if step_durations_ns else None
    return Found(value, {"count": count, "seconds": seconds, "rank": longest.rank, **(inputs or {})}, interval)


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The nearest-rank percentile: always one of the measured values."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


# --- speeds ---------------------------------------------------------------------------------------------------------


def _samples(window: Window) -> Sequence[int]:
    return window.per_step("samples")


def p_whole(window: Window, _run: Observed) -> Finding:
    return throughput(window, _samples(window), lambda rank: rank.whole_ns)


def p_train(window: Window, _run: Observed) -> Finding:
    return throughput(window, _samples(window), lambda rank: rank.train_ns, window.step_periods_ns)


def p_core(window: Window, _run: Observed) -> Finding:
    timing = {"timing": ", ".join(window.timing)}
    return throughput(window, _samples(window), lambda rank: rank.core_ns, window.step_computes_ns, inputs=timing)


def p_whole_all(loop: Loop) -> Finding:
    samples = sum(sum(rank.samples) for rank in loop.ranks)
    longest = max(loop.ranks, key=lambda rank: rank.span.length_ns)
    seconds = longest.span.length_ns / SECOND_NS
    if not samples or not seconds:
        return absent("not_measured", "throughput.no_samples_or_time", samples=samples, seconds=seconds)
    return Found(samples / seconds, {"count": samples, "seconds": seconds, "rank": longest.rank})


def tokens_per_device(window: Window, run: Observed) -> Finding:
    tokens = window.per_step("tokens")
    if not any(tokens):
        return absent("not_applicable", "throughput.no_tokens_counted")
    devices = run.job.world_size
    return throughput(window, tokens, lambda rank: rank.train_ns, window.step_periods_ns, devices, {"devices": devices})


# --- steps ----------------------------------------------------------------------------------------------------------


def _step_time(percent: int) -> Formula:
    def formula(window: Window, _run: Observed) -> Finding:
        return Found(nearest_rank(sorted(window.step_computes_ns), percent) / SECOND_NS)

    return of_window(formula)


def rank_spread(window: Window, _run: Observed) -> Finding:
    """How much longer the steps of the slowest rank take than those of the median rank."""
    if len(window.ranks) == 1:
        return absent("not_applicable", "throughput.one_rank")
    num_steps = len(window.step_periods_ns)
    step_seconds = [rank.train_ns / num_steps / SECOND_NS for rank in window.ranks]
    slowest = max(window.ranks, key=lambda rank: rank.train_ns)
    inputs = {
        "rank": slowest.rank,
        "step_seconds": step_seconds,
        "wait_seconds": [rank.wait_ns / num_steps / SECOND_NS for rank in window.ranks],
    }
    return Found(max(step_seconds) / median(step_seconds), inputs)


def data_wait_share(window: Window, _run: Observed) -> Finding:
    waiting = max(window.ranks, key=lambda rank: rank.wait_ns / rank.train_ns)
    return Found(min(1.0, waiting.wait_ns / waiting.train_ns), {"rank": waiting.rank})


def padding_ratio(window: Window, _run: Observed) -> Finding:
    positions, tokens = window.positions, window.tokens
    if not positions:
        return absent("not_applicable", "throughput.no_tokens_counted")
    padded = positions - tokens
    return Found(padded / positions, {"tokens": tokens, "padded_tokens": padded})


def steps_kept(loop: Loop) -> Finding:
    return Found(loop.steps_kept)


def steps_dropped(loop: Loop) -> Finding:
    return Found(loop.steps_dropped)


def samples_kept(loop: Loop) -> Finding:
    return Found(sum(sum(rank.samples[rank.steps_dropped :]) for rank in loop.ranks))


def _speed(name: str, formula: Formula, title: Text, remark: Text) -> MetricEntry:
    return speed_entry(name, "training_speed", samples_per_second, formula, title, remark)


def _step_percentile(percent: int) -> MetricEntry:
    return MetricEntry(
        name=f"step_time_p{percent}",
        unit="s",
        group="steps",
        scope="system",
        formula=_step_time(percent),
        format=units.milliseconds,
        shown_unit="ms",
        marks=SPEED,
        better="quicker",
        title={"en": f"Step time, {percent}th percentile", "zh": f"单步时间（{percent}分位）"},
        remark={
            "en": f"{percent} % of the kept steps need at most this compute time, ms",
            "zh": f"{percent} %的保留步的计算时间不超过该值，单位毫秒",
        },
    )


METRICS = (
    _speed(
        "p_whole",
        of_window(p_whole),
        {"en": "Overall throughput", "zh": "总吞吐量"},
        {
            "en": "real samples of the steps after warm-up, divided by the time from the end of warm-up to the end of "
            "training, including evaluation, {unit}",
            "zh": "预热后各步的真实样本数÷从预热结束到训练结束的时间（含评估），单位{unit}",
        },
    ),
    _speed(
        "p_train",
        of_window(p_train),
        {"en": "Training throughput", "zh": "训练吞吐量"},
        {"en": "without evaluation and logging, {unit}", "zh": "不含评估与日志，单位{unit}"},
    ),
    _speed(
        "p_core",
        of_window(p_core),
        {"en": "Compute throughput", "zh": "计算吞吐量"},
        {
            "en": "compute and communication only; p_core ≥ p_train ≥ p_whole, {unit}",
            "zh": "只含计算与通信，p_core≥p_train≥p_whole，单位{unit}",
        },
    ),
    _speed(
        "p_whole_all",
        of_loop(p_whole_all),
        {"en": "Overall throughput, warm-up included", "zh": "总吞吐量（含预热）"},
        {"en": "all steps, as older pages count, {unit}", "zh": "计入全部步，同旧版页面，单位{unit}"},
    ),
    MetricEntry(
        name="token/p/s",
        unit="tokens/s",
        group="training_speed",
        scope="device",
        formula=of_window(tokens_per_device),
        format=units.tokens_per_second,
        shown_unit="tokens/s per device",
        marks=SPEED,
        better="faster",
        title={"en": "Tokens per second per device", "zh": "吞吐量"},
        remark={
            "en": "real tokens per device and second, padding excluded",
            "zh": "每卡每秒处理的真实token数（不含填充）",
        },
    ),
    _step_percentile(50),
    _step_percentile(90),
    _step_percentile(99),
    MetricEntry(
        name="data_wait_share",
        unit="share",
        group="steps",
        scope="rank",
        formula=of_window(data_wait_share),
        format=units.percent,
        title={"en": "Waiting for data", "zh": "数据等待占比"},
        remark={"en": "share of the training time, worst rank", "zh": "占训练时间的比例，取最差的rank"},
    ),
    MetricEntry(
        name="rank_spread",
        unit="ratio",
        group="steps",
        scope="rank",
        formula=of_window(rank_spread),
        format=units.fraction,
        marks=SPEED,
        title={"en": "Slowest rank", "zh": "最慢的rank"},
        remark={
            "en": "its step time, divided by that of the median rank",
            "zh": "其单步时间÷各rank单步时间的中位数",
        },
    ),
    MetricEntry(
        name="padding_ratio",
        unit="share",
        group="steps",
        scope="system",
        formula=of_window(padding_ratio),
        format=units.percent,
        title={"en": "Padding ratio", "zh": "填充比例"},
        remark={"en": "padding among all computed positions", "zh": "全部计算位置中的填充占比"},
    ),
    MetricEntry(
        name="steps_kept",
        unit="steps",
        group="steps",
        scope="job",
        formula=of_loop(steps_kept),
        format=units.count,
        title={"en": "Steps kept", "zh": "保留步数"},
        remark={"en": "steps after warm-up", "zh": "预热后的步数"},
    ),
    MetricEntry(
        name="steps_dropped",
        unit="steps",
        group="steps",
        scope="job",
        formula=of_loop(steps_dropped),
        format=units.count,
        title={"en": "Steps dropped", "zh": "丢弃步数"},
        remark={"en": "warm-up steps", "zh": "预热步数"},
    ),
    MetricEntry(
        name="samples_kept",
        unit="samples",
        group="steps",
        scope="system",
        formula=of_loop(samples_kept),
        format=units.count,
        title={"en": "Samples kept", "zh": "保留样本数"},
        remark={"en": "real samples of the steps after warm-up", "zh": "预热后各步的真实样本数"},
    ),
)

# Throughput of an inference case with its engine, counting real tokens or samples.


def by_framework(_run: Observed) -> Finding:
    return absent("not_applicable", "inference.engine_alone")


def _work(window: Window, run: Observed) -> Sequence[int]:
    return window.per_step("tokens" if run.manifest.counts == "tokens" else "samples")


def p_infer_whole(window: Window, run: Observed) -> Finding:
    return throughput(window, _work(window, run), lambda rank: rank.whole_ns)


def p_infer_core(window: Window, run: Observed) -> Finding:
    inputs = {"timing": ", ".join(window.timing), "engine": _engine(run)}
    core_ns = window.step_computes_ns
    return throughput(window, _work(window, run), lambda rank: rank.core_ns, core_ns, inputs=inputs)


def p_infer_padded(window: Window, run: Observed) -> Finding:
    if run.manifest.counts != "tokens":
        return absent("not_applicable", "throughput.no_tokens_counted")
    return throughput(window, window.positions_per_step, lambda rank: rank.core_ns, window.step_computes_ns)


def _engine(run: Observed) -> str:
    """The form used on pages: `engine (torch 2.6)`."""
    found = run.ranks[0].started.framework if run.ranks else {}
    versions = ", ".join(f"{name} {version}" for name, version in found.items() if name == "torch")
    return f"{run.manifest.engine} ({versions})" if versions else run.manifest.engine


def _inference_speed(name: str, formula: Formula, title: Text, remark: Text) -> MetricEntry:
    return speed_entry(name, "inference_speed", work_per_second, formula, title, remark)


BY_FRAMEWORK = {"en": "by the plain framework, {unit}", "zh": "由框架直接推理，单位{unit}"}

INFERENCE_METRICS = (
    _inference_speed(
        "p_val_whole", by_framework, {"en": "Framework throughput, overall", "zh": "验证总吞吐量"}, BY_FRAMEWORK
    ),
    _inference_speed(
        "p_val_core", by_framework, {"en": "Framework throughput, compute", "zh": "验证计算吞吐量"}, BY_FRAMEWORK
    ),
    _inference_speed(
        "p_infer_whole",
        of_window(p_infer_whole),
        {"en": "Engine throughput, overall", "zh": "推理总吞吐量"},
        {
            "en": "of the whole system; real work over the time of the whole loop, {unit}",
            "zh": "全系统，真实工作量÷推理循环总时间，单位{unit}",
        },
    ),
    _inference_speed(
        "p_infer_core",
        of_window(p_infer_core),
        {"en": "Engine throughput, compute", "zh": "推理计算吞吐量"},
        {
            "en": "compute and communication only; p_infer_core ≥ p_infer_whole, {unit}",
            "zh": "只含计算与通信，p_infer_core≥p_infer_whole，单位{unit}",
        },
    ),
    _inference_speed(
        "p_infer_padded",
        of_window(p_infer_padded),
        {"en": "Engine throughput, padded", "zh": "推理计算吞吐量（含填充）"},
        {
            "en": "like p_infer_core, but padding positions are counted too, {unit}",
            "zh": "同p_infer_core，但计入填充位置，单位{unit}",
        },
    ),
)
