"""Throughput of an inference case with its engine, counting real tokens or samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagperf.kinds.kind import Text
from flagperf.metrics.entry import Formula, MetricEntry, speed_entry, work_per_second
from flagperf.metrics.finding import Finding, absent
from flagperf.metrics.observed import Observed
from flagperf.metrics.throughput import of_window, throughput

if TYPE_CHECKING:
    from flagperf.metrics.window import Window


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


def _speed(name: str, formula: Formula, title: Text, remark: Text) -> MetricEntry:
    return speed_entry(name, "inference_speed", work_per_second, formula, title, remark)


BY_FRAMEWORK = {"en": "by the plain framework, {unit}", "zh": "由框架直接推理，单位{unit}"}

METRICS = (
    _speed("p_val_whole", by_framework, {"en": "Framework throughput, overall", "zh": "验证总吞吐量"}, BY_FRAMEWORK),
    _speed("p_val_core", by_framework, {"en": "Framework throughput, compute", "zh": "验证计算吞吐量"}, BY_FRAMEWORK),
    _speed(
        "p_infer_whole",
        of_window(p_infer_whole),
        {"en": "Engine throughput, overall", "zh": "推理总吞吐量"},
        {
            "en": "of the whole system; real work over the time of the whole loop, {unit}",
            "zh": "全系统，真实工作量÷推理循环总时间，单位{unit}",
        },
    ),
    _speed(
        "p_infer_core",
        of_window(p_infer_core),
        {"en": "Engine throughput, compute", "zh": "推理计算吞吐量"},
        {
            "en": "compute and communication only; p_infer_core ≥ p_infer_whole, {unit}",
            "zh": "只含计算与通信，p_infer_core≥p_infer_whole，单位{unit}",
        },
    ),
    _speed(
        "p_infer_padded",
        of_window(p_infer_padded),
        {"en": "Engine throughput, padded", "zh": "推理计算吞吐量（含填充）"},
        {
            "en": "like p_infer_core, but padding positions are counted too, {unit}",
            "zh": "同p_infer_core，但计入填充位置，单位{unit}",
        },
    ),
)
