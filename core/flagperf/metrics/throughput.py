"""Speeds, step times and counts of a loop, of training and of inference."""

from __future__ import annotations

from collections.abc import Sequence

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
from flagperf.metrics.observed import Observed, Window
from flagperf.stats import median
from flagperf.units import SECOND_NS

# Training.


def p_whole(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    return run.window.rate(run.window.samples, run.window.whole_ns)


def p_train(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    return run.window.rate(run.window.samples, run.window.train_ns, run.window.period_ns)


def p_core(run: Observed) -> Finding:
    """Return samples per second of compute time. The rank that computed longest decides."""
    if isinstance(run.window, Absent):
        return run.window
    return run.window.rate(run.window.samples, run.window.core_ns, run.window.compute_ns, timing=run.window.timing)


def p_whole_all(run: Observed) -> Finding:
    if isinstance(run.steps, Absent):
        return run.steps
    samples = sum(sum(rank.samples) for rank in run.steps)
    longest = max(run.steps, key=lambda rank: rank.loop.length_ns)
    seconds = longest.loop.seconds
    if not samples or not seconds:
        return absent("not_measured", "throughput.no_samples_or_time", samples=samples, seconds=seconds)
    return Found(samples / seconds, {"count": samples, "seconds": seconds, "rank": longest.rank})


def tokens_per_device(run: Observed) -> Finding:
    window, devices = run.window, run.job.world_size
    if isinstance(window, Absent):
        return window
    if not any(window.tokens):
        return absent("not_applicable", "throughput.no_tokens_counted")
    return window.rate(window.tokens, window.train_ns, window.period_ns, devices, devices=devices)


# Steps.


def step_time(percent: int) -> Formula:
    def formula(run: Observed) -> Finding:
        if isinstance(run.window, Absent):
            return run.window
        return Found(nearest_rank(sorted(run.window.compute_ns), percent) / SECOND_NS)

    return formula


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """Return the nearest-rank percentile, which is always one of the measured values."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def rank_spread(run: Observed) -> Finding:
    """Return how much longer the steps of the slowest rank take than those of the median rank."""
    window = run.window
    if isinstance(window, Absent):
        return window
    if len(window.ranks) == 1:
        return absent("not_applicable", "throughput.one_rank")
    num_steps = len(window.period_ns)
    step_seconds = [rank.train_ns / num_steps / SECOND_NS for rank in window.ranks]
    slowest = max(window.ranks, key=lambda rank: rank.train_ns)
    inputs = {
        "rank": slowest.rank,
        "step_seconds": step_seconds,
        "wait_seconds": [rank.wait_ns / num_steps / SECOND_NS for rank in window.ranks],
    }
    return Found(max(step_seconds) / median(step_seconds), inputs)


def data_wait_share(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    waiting = max(run.window.ranks, key=lambda rank: rank.wait_ns / rank.train_ns)
    return Found(min(1.0, waiting.wait_ns / waiting.train_ns), {"rank": waiting.rank})


def padding_ratio(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    positions, tokens = sum(run.window.positions), sum(run.window.tokens)
    if not positions:
        return absent("not_applicable", "throughput.no_tokens_counted")
    padded = positions - tokens
    return Found(padded / positions, {"tokens": tokens, "padded_tokens": padded})


def steps_kept(run: Observed) -> Finding:
    return run.steps if isinstance(run.steps, Absent) else Found(run.steps[0].num_kept)


def steps_dropped(run: Observed) -> Finding:
    return run.steps if isinstance(run.steps, Absent) else Found(run.steps[0].dropped)


def samples_kept(run: Observed) -> Finding:
    if isinstance(run.steps, Absent):
        return run.steps
    return Found(sum(sum(rank.samples[rank.dropped :]) for rank in run.steps))


def _speed(name: str, formula: Formula, title: Text, remark: Text) -> MetricEntry:
    return speed_entry(name, "training_speed", samples_per_second, formula, title, remark)


def _step_percentile(percent: int) -> MetricEntry:
    return MetricEntry(
        name=f"step_time_p{percent}",
        unit="s",
        group="steps",
        scope="system",
        formula=step_time(percent),
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
        p_whole,
        {"en": "Overall throughput", "zh": "总吞吐量"},
        {
            "en": "real samples of the steps after warm-up, divided by the time from the end of warm-up to the end of "
            "training, including evaluation, {unit}",
            "zh": "预热后各步的真实样本数÷从预热结束到训练结束的时间（含评估），单位{unit}",
        },
    ),
    _speed(
        "p_train",
        p_train,
        {"en": "Training throughput", "zh": "训练吞吐量"},
        {"en": "without evaluation and logging, {unit}", "zh": "不含评估与日志，单位{unit}"},
    ),
    _speed(
        "p_core",
        p_core,
        {"en": "Compute throughput", "zh": "计算吞吐量"},
        {
            "en": "compute and communication only; p_core ≥ p_train ≥ p_whole, {unit}",
            "zh": "只含计算与通信，p_core≥p_train≥p_whole，单位{unit}",
        },
    ),
    _speed(
        "p_whole_all",
        p_whole_all,
        {"en": "Overall throughput, warm-up included", "zh": "总吞吐量（含预热）"},
        {"en": "all steps, as older pages count, {unit}", "zh": "计入全部步，同旧版页面，单位{unit}"},
    ),
    MetricEntry(
        name="token/p/s",
        unit="tokens/s",
        group="training_speed",
        scope="device",
        formula=tokens_per_device,
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
        formula=data_wait_share,
        format=units.percent,
        title={"en": "Waiting for data", "zh": "数据等待占比"},
        remark={"en": "share of the training time, worst rank", "zh": "占训练时间的比例，取最差的rank"},
    ),
    MetricEntry(
        name="rank_spread",
        unit="ratio",
        group="steps",
        scope="rank",
        formula=rank_spread,
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
        formula=padding_ratio,
        format=units.percent,
        title={"en": "Padding ratio", "zh": "填充比例"},
        remark={"en": "padding among all computed positions", "zh": "全部计算位置中的填充占比"},
    ),
    MetricEntry(
        name="steps_kept",
        unit="steps",
        group="steps",
        scope="job",
        formula=steps_kept,
        format=units.count,
        title={"en": "Steps kept", "zh": "保留步数"},
        remark={"en": "steps after warm-up", "zh": "预热后的步数"},
    ),
    MetricEntry(
        name="steps_dropped",
        unit="steps",
        group="steps",
        scope="job",
        formula=steps_dropped,
        format=units.count,
        title={"en": "Steps dropped", "zh": "丢弃步数"},
        remark={"en": "warm-up steps", "zh": "预热步数"},
    ),
    MetricEntry(
        name="samples_kept",
        unit="samples",
        group="steps",
        scope="system",
        formula=samples_kept,
        format=units.count,
        title={"en": "Samples kept", "zh": "保留样本数"},
        remark={"en": "real samples of the steps after warm-up", "zh": "预热后各步的真实样本数"},
    ),
)

# Inference with an engine, counting real tokens or samples.


def by_framework(_run: Observed) -> Finding:
    return absent("not_applicable", "inference.engine_alone")


def counted_work(window: Window, run: Observed) -> Sequence[int]:
    return window.tokens if run.manifest.counts == "tokens" else window.samples


def p_infer_whole(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    return run.window.rate(counted_work(run.window, run), run.window.whole_ns)


def p_infer_core(run: Observed) -> Finding:
    """Return work per second of compute time, with the engine as pages write it: `engine (torch 2.6)`."""
    window = run.window
    if isinstance(window, Absent):
        return window
    torch = run.ranks[0].started.framework.get("torch")
    engine = f"{run.manifest.engine} (torch {torch})" if torch is not None else run.manifest.engine
    work = counted_work(window, run)
    return window.rate(work, window.core_ns, window.compute_ns, timing=window.timing, engine=engine)


def p_infer_padded(run: Observed) -> Finding:
    window = run.window
    if isinstance(window, Absent):
        return window
    if run.manifest.counts != "tokens":
        return absent("not_applicable", "throughput.no_tokens_counted")
    return window.rate(window.positions, window.core_ns, window.compute_ns)


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
        p_infer_whole,
        {"en": "Engine throughput, overall", "zh": "推理总吞吐量"},
        {
            "en": "of the whole system; real work over the time of the whole loop, {unit}",
            "zh": "全系统，真实工作量÷推理循环总时间，单位{unit}",
        },
    ),
    _inference_speed(
        "p_infer_core",
        p_infer_core,
        {"en": "Engine throughput, compute", "zh": "推理计算吞吐量"},
        {
            "en": "compute and communication only; p_infer_core ≥ p_infer_whole, {unit}",
            "zh": "只含计算与通信，p_infer_core≥p_infer_whole，单位{unit}",
        },
    ),
    _inference_speed(
        "p_infer_padded",
        p_infer_padded,
        {"en": "Engine throughput, padded", "zh": "推理计算吞吐量（含填充）"},
        {
            "en": "like p_infer_core, but padding positions are counted too, {unit}",
            "zh": "同p_infer_core，但计入填充位置，单位{unit}",
        },
    ),
)
