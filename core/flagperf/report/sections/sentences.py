"""Sentences about one run, shared by its card and the notes of a page."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.kinds import KINDS
from flagperf.messages import has_text, template, usable, words
from flagperf.metrics import Metric
from flagperf.metrics.entry import MetricEntry
from flagperf.report.document import NOTHING
from flagperf.report.sections.cells import Formatter
from flagperf.report.sections.columns import metric_format
from flagperf.report.sections.naming import (
    changes_by_layer,
    has_published_profile,
    is_published,
    marks_in,
    of_measured_peak,
)
from flagperf.report.texts import Lang, choose, clauses, explain, listed, say
from flagperf.store.run import RecordedRun, Run


def profile_sentence(run: Run, lang: Lang) -> str:
    """Whether this is the published configuration, and every changed value."""
    changed = changes_sentence(run, lang)
    return clauses([profile_verdict(run, lang), changed and say("changed", lang, changes=changed)], lang)


def profile_verdict(run: Run, lang: Lang) -> str:
    name = "profile_published" if is_published(run) else "profile_other"
    if has_published_profile(run) and not is_published(run):
        name = "profile_changed"
    return say(name, lang, profile=run.job.profile)


def changes_sentence(run: Run, lang: Lang) -> str:
    """`bs=96 (tuning acme), lr=1.5e-4 (--set)`."""
    changed = [
        say("change", lang, change=change, layer=layer)
        for layer, changes in changes_by_layer(run).items()
        for change in changes
    ]
    return listed(changed, lang)


def evaluated_sentence(run: Run, name: str, lang: Lang) -> str:
    """The number of evaluated rows of a quality. Empty if the case did not report it."""
    rows = evaluated_rows(run, name)
    return say("evaluated", lang, name=name, rows=rows) if rows else ""


def evaluated_rows(run: Run, name: str) -> str:
    metric = run.metric(name)
    if metric is None or metric.value is None or "evaluated" not in metric.inputs:
        return ""
    return units.count(metric.inputs["evaluated"])


def target_sentence(run: Run, lang: Lang) -> str:
    """Target and verdict."""
    metric = run.metric("target")
    if metric is None or metric.value is None:
        if run.manifest.target is None:
            return say("target_none", lang)
        reason = metric.reason if metric and metric.reason else "not_measured"
        return say(
            "target_unknown", lang, why=explain(reason, lang, usable(metric.message, metric.detail) if metric else "")
        )
    name = str(metric.inputs.get("metric", run.manifest.target.metric if run.manifest.target else ""))
    form = metric_format(run.manifest, name)
    target, got = (optional(metric.inputs.get(key), form) for key in ("target", "got"))
    if target == got and not metric.value:
        got = str(metric.inputs["got"])  # not rounded: rounding could hide why it was missed
    return say("target_reached" if metric.value else "target_missed", lang, metric=name, target=target, got=got)


def beside_memory(run: Run, lang: Lang) -> list[str]:
    """Memory used on the card before the workers started, and memory that their allocator does not account for."""
    baseline, allocator, remainder = (run.metric(f"mem_{name}") for name in ("baseline", "allocator", "remainder"))
    found = []
    if baseline is not None and baseline.value is not None:
        found.append(say("memory_baseline", lang, baseline=units.gib(baseline.value)))
    if allocator is not None and allocator.value is not None and remainder is not None and remainder.value is not None:
        amounts = {"allocator": units.gib(allocator.value), "remainder": units.gib(remainder.value)}
        found.append(say("memory_allocator", lang, device=allocator.inputs.get("device_id", NOTHING), **amounts))
    return found


def peak_time(run: Run, lang: Lang) -> str:
    """When memory use peaked. Appended to a sentence that names the device."""
    used = run.metric("mem_used")
    seconds = used.inputs.get("peak_seconds") if used else None
    if seconds is None:
        return ""
    side = "after" if seconds >= 0 else "before"
    loop = choose(KINDS[run.manifest.kind].loop, lang)
    return say(f"peak_{side}", lang, loop=loop, seconds=units.one_decimal(abs(seconds)))


def interval_sentence(metric: Metric, form: Formatter, lang: Lang) -> str:
    return say("interval", lang, name=metric.name, range=interval_range(metric, form, lang))


def interval_range(metric: Metric, form: Formatter, lang: Lang) -> str:
    """`820.7 to 1156.8 (95 %, batch means)`. Empty without an interval."""
    if metric.interval is None:
        return ""
    code = f"interval.{metric.interval.method}"
    method = template(code, lang) if has_text(code) else metric.interval.method
    low, high = form(metric.interval.low), form(metric.interval.high)
    return say("interval_range", lang, low=low, high=high, method=method)


def metric_sentence(run: Run, entry: MetricEntry, lang: Lang) -> str:
    """`Mean power: 312.4 W`. Empty without a value."""
    metric = run.metric(entry.name)
    if metric is None or metric.value is None:
        return ""
    value = f"{entry.format(metric.value)} {shown_unit(run, entry)}".rstrip()
    return say("metric", lang, title=choose(entry.title, lang), value=value)


def shown_unit(run: Run, entry: MetricEntry) -> str:
    unit = entry.shown_unit or entry.unit_of(run.manifest)
    return "" if unit == "share" else unit


def with_unit(entry: MetricEntry, value: float, unit: str) -> str:
    """`312.4 W`. `unit` is that of the recorded value; a share has none."""
    shown = entry.shown_unit or unit
    return entry.format(value) if shown in ("", "share", "fraction") else f"{entry.format(value)} {shown}"


def mfu_name(run: Run, lang: Lang) -> str:
    """Says so where it is relative to a peak that was measured."""
    return of_measured_peak("MFU", marks_in([run], "mfu"), lang)


def mfu_sentence(run: Run, lang: Lang) -> str:
    """Formula, N and peak. Empty without an MFU."""
    return clauses([mfu_formula(run, lang), mfu_peak(run, lang)], lang)


def mfu_formula(run: Run, lang: Lang) -> str:
    metric = run.metric("mfu")
    if metric is None or metric.value is None:
        return ""
    return say(
        "mfu",
        lang,
        name=mfu_name(run, lang),
        formula=metric.inputs.get("formula", NOTHING),
        parameters=optional(metric.inputs.get("parameters"), units.count),
        matmul=optional(metric.inputs.get("matmul_parameters"), units.count),
    )


def mfu_peak(run: Run, lang: Lang) -> str:
    """The peak that MFU is relative to, and its source."""
    metric, peak = run.metric("mfu"), run.job.peak
    if metric is None or metric.value is None or peak is None:
        return ""
    value = units.teraflops(peak.value)
    return say("mfu_peak", lang, peak=value, row=peak.row, source=peak.source, confidence=peak.confidence)


def optional(value: float | None, form: Formatter) -> str:
    return NOTHING if value is None else form(value)


def card_problems(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Of cards beside those of the run: what keeps one from being used may slow the others down."""
    for node in recorded.nodes:
        for device in node.broken_devices(recorded.run.job.vendor):
            yield say("card_problem", lang, device=device.id, host=node.host, problem=device.problem)


def doubts(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """What rules of plausibility found, with their ids."""
    for doubt in recorded.doubts:
        yield say("doubt", lang, rule=doubt.rule, seen=words(doubt.message, lang))


def recorded_operators(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """What came of --record-operators."""
    found = recorded.run.recorded
    if found is None:
        return
    if found.steps:
        yield say("recorded", lang, steps=found.steps, calls=found.num_calls, different=found.num_different)
    if found.problem is not None:
        yield words(usable(found.problem, found.problem.code), lang)
