"""The notes that every page prints about its runs: who measured what, when and how.

Each topic is a function of one run; equal texts of several runs become one note that names their rows.
"""

from __future__ import annotations

from collections.abc import Callable

from flagperf import units
from flagperf.metrics import LOSS_ALIGNED
from flagperf.report.alignment import verdict_sentence
from flagperf.report.cells import EMPTY, Formatter, has_results, memory_cell
from flagperf.report.columns import quality_format
from flagperf.report.environment import differing_facts
from flagperf.report.page_runs import PageRuns
from flagperf.report.texts import Lang, clauses, explain, listed, recorded_words, say
from flagperf.report.words import (
    changes_by_layer,
    has_published_profile,
    is_published,
    layout,
    overrides,
    run_configuration,
)
from flagperf.store.run import RecordedRun, Run

Topic = Callable[[RecordedRun, Lang], str]

MAX_PARTS = 8


def run_notes(page: PageRuns) -> list[str]:
    topics: list[list[str]] = [_run_texts(page)]
    topics += [[topic(recorded, page.lang) for recorded in page.runs] for topic in TOPICS]
    return [note for texts in topics for note in page.by_rows(texts)]


def profile_sentence(run: Run, lang: Lang) -> str:
    """Whether this is the published configuration, and every value that was changed in it."""
    name = "profile_published" if is_published(run) else "profile_other"
    if has_published_profile(run) and not is_published(run):
        name = "profile_changed"
    changed = changes_sentence(run, lang)
    return clauses([say(name, lang, profile=run.job.profile), changed and say("changed", lang, changes=changed)], lang)


def changes_sentence(run: Run, lang: Lang) -> str:
    """`bs=96 (tuning acme), lr=1.5e-4 (--set)`."""
    changed = [
        say("change", lang, change=change, layer=layer)
        for layer, changes in changes_by_layer(run).items()
        for change in changes
    ]
    return listed(changed, lang)


def evaluated_sentence(run: Run, name: str, lang: Lang) -> str:
    """How many rows stand behind a quality, where the case says so."""
    rows = _evaluated_rows(run, name)
    return say("evaluated", lang, name=name, rows=rows) if rows else ""


def _evaluated_rows(run: Run, name: str) -> str:
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
        return say("target_unknown", lang, why=explain(reason, lang, metric.detail if metric else ""))
    name = str(metric.inputs.get("metric", run.manifest.target.metric if run.manifest.target else ""))
    form = quality_format(run.manifest, name)
    target, got = (_number(metric.inputs.get(key), form) for key in ("target", "got"))
    if target == got and not metric.value:
        got = str(metric.inputs["got"])  # rounding would hide why it was missed
    return say("target_reached" if metric.value else "target_missed", lang, metric=name, target=target, got=got)


def memory_sentence(run: Run, lang: Lang) -> str:
    """Probe, interval and device, and plainly what is measured where devices have no memory of their own."""
    used = run.metric("mem_used")
    sampled = ""
    if used is not None and used.value is not None:
        numbers = {key: used.inputs.get(f"{key}_seconds") for key in ("interval", "largest_gap")}
        interval, gap = (EMPTY if number is None else f"{number:.3g}" for number in numbers.values())
        sampled = say(
            "memory", lang, probe=used.inputs.get("probe", EMPTY), samples=used.inputs.get("num_samples", EMPTY),
            interval=interval, gap=gap, device=used.inputs.get("device_id", EMPTY),
        )  # fmt: skip
        sampled += peak_time(run, lang)
    beside = [say("memory_host", lang)] if run.job.memory_scope == "host" else beside_memory(run, lang)
    return clauses([sampled, *_memory_spreads(run, lang), *beside], lang)


def _memory_spreads(run: Run, lang: Lang) -> list[str]:
    """How even the devices are, where there are several: stages of a pipeline differ."""
    found = []
    for name, source in (("mem_used", "by_probe"), ("mem_allocator", "by_allocator")):
        metric = run.metric(name)
        peaks = list(metric.inputs.get("per_device", {}).values()) if metric and metric.value is not None else []
        if len(peaks) > 1:
            amounts = {"low": min(peaks), "mean": sum(peaks) / len(peaks), "high": max(peaks)}
            shown = {key: units.gib(amount) for key, amount in amounts.items()}
            found.append(say("memory_spread", lang, devices=len(peaks), source=say(source, lang), **shown))
    return found


def beside_memory(run: Run, lang: Lang) -> list[str]:
    """What was on the card before the workers, and what of it their allocator does not know."""
    baseline, allocator, remainder = (run.metric(f"mem_{name}") for name in ("baseline", "allocator", "remainder"))
    found = []
    if baseline is not None and baseline.value is not None:
        found.append(say("memory_baseline", lang, baseline=units.gib(baseline.value)))
    if allocator is not None and allocator.value is not None and remainder is not None and remainder.value is not None:
        amounts = {"allocator": units.gib(allocator.value), "remainder": units.gib(remainder.value)}
        found.append(say("memory_allocator", lang, device=allocator.inputs.get("device_id", EMPTY), **amounts))
    return found


def peak_time(run: Run, lang: Lang) -> str:
    """When memory was fullest, as the end of a sentence that says where."""
    used = run.metric("mem_used")
    seconds = used.inputs.get("peak_seconds") if used else None
    if seconds is None:
        return ""
    side = "after" if seconds >= 0 else "before"
    return say(f"peak_{side}_{run.manifest.kind}", lang, seconds=units.one_decimal(abs(seconds)))


def mfu_sentence(run: Run, lang: Lang) -> str:
    """Formula id, N, peak and the peak's source."""
    metric = run.metric("mfu")
    if metric is None or metric.value is None:
        return ""
    found, peak = metric.inputs, run.job.peak
    return say(
        "mfu", lang,
        formula=found.get("formula", EMPTY),
        parameters=_number(found.get("parameters"), units.count),
        matmul=_number(found.get("matmul_parameters"), units.count),
        peak=units.teraflops(peak.value) if peak else EMPTY,
        row=peak.row if peak else EMPTY,
        source=peak.source if peak else EMPTY,
        confidence=peak.confidence if peak else EMPTY,
    )  # fmt: skip


def _run_texts(page: PageRuns) -> list[str]:
    """Identity of each run, and which repeat of its configuration it is."""
    kinds = [_kind(recorded.run) for recorded in page.runs]
    return [
        say(
            "run", page.lang, id=recorded.run.id, date=recorded.run.created[:10],
            repeat=kinds[: index + 1].count(kinds[index]), repeats=kinds.count(kinds[index]),
        )
        for index, recorded in enumerate(page.runs)
    ]  # fmt: skip


def _kind(run: Run) -> tuple[str, ...]:
    return run_configuration(run, "en"), run.job.precision.name, layout(run), overrides(run), run.job.profile


def _simulated(recorded: RecordedRun, lang: Lang) -> str:
    return say("simulated", lang) if recorded.run.simulated else ""


def _made_by(recorded: RecordedRun, lang: Lang) -> str:
    run = recorded.run
    fact = recorded.nodes[0].environment.facts.get("commit") if recorded.nodes else None
    commit = say("commit", lang, commit=fact.value) if fact and fact.value else ""
    return say(
        "made_by", lang, case=run.manifest.name, version=run.manifest.version, adapter=run.job.adapter,
        flagperf=run.flagperf_version, commit=commit,
    )  # fmt: skip


def _profile(recorded: RecordedRun, lang: Lang) -> str:
    return profile_sentence(recorded.run, lang)


def _steps(recorded: RecordedRun, lang: Lang) -> str:
    run = recorded.run
    if not has_results(run):
        return ""
    counted = say(
        "steps", lang, dropped=_metric(run, "steps_dropped", units.count),
        kept=_metric(run, "steps_kept", units.count), padding=_metric(run, "padding_ratio", units.percent),
        timing=_timing(run),
    )  # fmt: skip
    return clauses([counted, *_intervals(run, lang)], lang)


def _timing(run: Run) -> str:
    metric = run.metric("p_infer_core" if run.manifest.kind == "inference" else "p_core")
    return str(metric.inputs.get("timing", EMPTY)) if metric else EMPTY


def _intervals(run: Run, lang: Lang) -> list[str]:
    return [
        say(
            "interval", lang, name=metric.name, low=units.per_second(metric.interval.low),
            high=units.per_second(metric.interval.high), method=recorded_words(metric.interval.method, lang),
        )
        for name in run.manifest.page.columns
        if (metric := run.metric(name)) is not None and metric.interval is not None
    ]  # fmt: skip


def _target(recorded: RecordedRun, lang: Lang) -> str:
    return target_sentence(recorded.run, lang) if has_results(recorded.run) else ""


def _evaluated(recorded: RecordedRun, lang: Lang) -> str:
    run = recorded.run
    if not has_results(run):
        return ""
    names: dict[str, list[str]] = {}
    for quality in run.manifest.qualities:
        rows = _evaluated_rows(run, quality.name)
        if rows:
            names.setdefault(rows, []).append(quality.name)
    return clauses([say("evaluated", lang, name=listed(names[rows], lang), rows=rows) for rows in names], lang)


def _parts(recorded: RecordedRun, lang: Lang) -> str:
    """What qualities are made of, where it is few enough to read; the rest is in the bundle."""
    if not has_results(recorded.run):
        return ""
    return clauses([
        _made_of(recorded.run, quality.name, by, values, lang)
        for quality in recorded.run.manifest.qualities
        if (metric := recorded.run.metric(quality.name)) is not None
        for by, values in metric.inputs.get("parts", {}).items()
        if len(values) <= MAX_PARTS
    ], lang)  # fmt: skip


def _made_of(run: Run, name: str, by: str, values: dict[str, float], lang: Lang) -> str:
    form = quality_format(run.manifest, name)
    return say("parts", lang, name=name, by=by, parts=listed([f"{each} {form(values[each])}" for each in values], lang))


def _memory(recorded: RecordedRun, lang: Lang) -> str:
    run = recorded.run
    return memory_sentence(run, lang) if has_results(run) or not memory_cell(run).reason else ""


def _cpu_others(recorded: RecordedRun, lang: Lang) -> str:
    metric = recorded.run.metric("cpu_others")
    if recorded.run.job.memory_scope != "host" or metric is None or metric.value is None:
        return ""
    return say("cpu_others", lang, share=units.percent(metric.value), cores=metric.inputs.get("cores", EMPTY))


def _mfu(recorded: RecordedRun, lang: Lang) -> str:
    return mfu_sentence(recorded.run, lang) if has_results(recorded.run) else ""


def _mfu_useful(recorded: RecordedRun, lang: Lang) -> str:
    """Where a part of the work was padding."""
    run = recorded.run
    useful, whole = run.metric("mfu_useful"), run.metric("mfu")
    if not has_results(run) or useful is None or useful.value is None or whole is None or useful.value == whole.value:
        return ""
    return say("mfu_useful", lang, share=units.percent(useful.value))


def _mfu_others(recorded: RecordedRun, lang: Lang) -> str:
    """Pages count by different formulas, and by one of these a published figure can be compared."""
    run = recorded.run
    if not has_results(run) or not mfu_sentence(run, lang):
        return ""
    found = [run.metric(name) for name in ("mfu_nominal-6n", "mfu_nominal-2n", "mfu_palm")]
    figures = [
        f"{metric.inputs.get('formula', metric.name.removeprefix('mfu_'))} {units.percent(metric.value)}"
        for metric in found
        if metric is not None and metric.value is not None
    ]
    return say("mfu_others", lang, figures=listed(figures, lang)) if figures else ""


def _aligned(recorded: RecordedRun, lang: Lang) -> str:
    verdict = recorded.run.metric(LOSS_ALIGNED.name)
    return verdict_sentence(verdict, lang) if verdict and has_results(recorded.run) else ""


def _data(recorded: RecordedRun, lang: Lang) -> str:
    files = [say("data_file", lang, path=file.path, sha256=file.sha256) for file in recorded.run.job.data_files]
    return say("data_files", lang, files=listed(files, lang)) if files else ""


def _nodes(recorded: RecordedRun, lang: Lang) -> str:
    names = differing_facts(recorded)
    return say("nodes_differ", lang, facts=listed(names, lang)) if names else ""


TOPICS: tuple[Topic, ...] = (
    _simulated, _made_by, _profile, _steps, _target, _evaluated, _parts, _memory, _cpu_others, _mfu, _mfu_useful,
    _mfu_others, _aligned, _data, _nodes,
)  # fmt: skip


def _metric(run: Run, name: str, form: Formatter) -> str:
    metric = run.metric(name)
    if metric is None or metric.value is None:
        return f"{EMPTY} ({metric.reason if metric and metric.reason else 'not_measured'})"
    return form(metric.value)


def _number(value: float | None, form: Formatter) -> str:
    return EMPTY if value is None else form(value)
