"""The notes of a page: what was measured, when, how and with which versions.

A topic yields the sentences for one run. Equal sentences of several runs become one note. The note names its rows
unless it applies to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, listed, say
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.registry import entries_of
from flagperf.report.document import NOTHING, Block, Empty, NoteGroup, Notes
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.alignment_blocks import verdict_sentence
from flagperf.report.wording import (
    beside_memory,
    card_problems,
    changes_sentence,
    doubts,
    evaluated_rows,
    interval_sentence,
    layout,
    memory_cell,
    metric_format,
    metric_sentence,
    mfu_formula,
    mfu_name,
    mfu_peak,
    overrides,
    peak_time,
    profile_verdict,
    recorded_operators,
    run_configuration,
    target_sentence,
)
from flagperf_publish.pages.setup import differing_facts

Topic = Callable[[RecordedRun, Lang], Iterator[str]]

MAX_PARTS = 8
"""The parts of a quality are printed if there are at most this many. The bundle always has all of them."""


def notes(page: PageRuns) -> Iterator[Block]:
    found = {}
    for subject, topics in SUBJECTS.items():
        merged = [page.merged([list(topic(recorded, page.lang)) for recorded in page.runs]) for topic in topics]
        found[subject] = [text for of_topic in merged for text in of_topic]
    setups = [
        (run_configuration(run, "en"), run.job.precision.name, layout(run), overrides(run), run.job.profile)
        for run in (recorded.run for recorded in page.runs)
    ]
    texts = []  # id and date of each run, and its number among the repeats of its configuration
    for index, recorded in enumerate(page.runs):
        of_group = {"repeat": setups[: index + 1].count(setups[index]), "repeats": setups.count(setups[index])}
        texts.append(say("run", page.lang, id=recorded.run.id, date=recorded.run.created[:10], **of_group))
    found["measured"] = [*page.by_rows(texts), *found["measured"]]
    groups = [NoteGroup(page.label(f"about_{subject}"), tuple(texts)) for subject, texts in found.items() if texts]
    yield Notes(tuple(groups), page.label("notes"))


def simulated(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    if recorded.run.simulated:
        yield say("simulated", lang)


def redacted(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    if recorded.run.redacted:
        yield say("redacted", lang)


def made_by(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    run = recorded.run
    fact = recorded.nodes[0].environment.facts.get("commit") if recorded.nodes else None
    commit = say("commit", lang, commit=fact.value) if fact and fact.value else ""
    yield say(
        "made_by",
        lang,
        case=run.manifest.name,
        version=run.manifest.version,
        adapter=run.job.adapter,
        flagperf=run.flagperf_version,
        commit=commit,
    )


def profile(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Yield the verdict on the profile, with the changed values unless the general table lists them."""
    run = recorded.run
    yield profile_verdict(run, lang)
    changed = changes_sentence(run, lang)
    if changed and "extra" not in run.manifest.page.rows:
        yield say("changed", lang, changes=changed)


def nodes(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    names = differing_facts(recorded)
    if names:
        yield say("nodes_differ", lang, facts=listed(names, lang))


def steps(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    run, kind = recorded.run, KINDS[recorded.run.manifest.kind]
    if run.has_results and kind.has_steps:
        shown = {}
        for key, name, form in (
            ("dropped", "steps_dropped", units.count),
            ("kept", "steps_kept", units.count),
            ("padding", "padding_ratio", units.percent),
        ):
            metric = run.metric(name)
            reason = (metric.reason if metric else None) or "not_measured"
            shown[key] = form(metric.value) if metric and metric.value is not None else f"{NOTHING} ({reason})"
        timed = run.metric(kind.timed)
        timing = str(timed.inputs.get("timing", NOTHING)) if timed else NOTHING
        yield say("steps", lang, timing=timing, **shown)


def intervals(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    run = recorded.run
    figures = {figure.name for figure in run.manifest.figures}  # have a table with their intervals
    for name in run.manifest.page.columns if run.has_results else ():
        metric = None if name in figures else run.metric(name)
        if metric is not None and metric.interval is not None:
            yield interval_sentence(metric, metric_format(run.manifest, name), lang)


def cpu_others(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    metric = recorded.run.metric("cpu_others")
    if recorded.run.job.memory_scope == "host" and metric is not None and metric.value is not None:
        yield say("cpu_others", lang, share=units.percent(metric.value), cores=metric.inputs.get("cores", NOTHING))


def target(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    if recorded.run.has_results and KINDS[recorded.run.manifest.kind].has_steps:
        yield target_sentence(recorded.run, lang)


def evaluated(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    run = recorded.run
    names: dict[str, list[str]] = {}
    for quality in run.manifest.qualities if run.has_results else ():
        rows = evaluated_rows(run, quality.name)
        if rows:
            names.setdefault(rows, []).append(quality.name)
    for rows, found in names.items():
        yield say("evaluated", lang, name=listed(found, lang), rows=rows)


def parts(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    run = recorded.run
    for quality in run.manifest.qualities if run.has_results else ():
        metric, form = run.metric(quality.name), metric_format(run.manifest, quality.name)
        for by, values in metric.inputs.get("parts", {}).items() if metric else ():
            if len(values) <= MAX_PARTS:
                parts = listed([f"{each} {form(values[each])}" for each in values], lang)
                yield say("parts", lang, name=quality.name, by=by, parts=parts)


def memory(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Yield the probe, its interval, and the device with the peak."""
    used = recorded.run.metric("mem_used")
    if used is None or used.value is None or not _has_memory(recorded.run):
        return
    numbers = {key: used.inputs.get(f"{key}_seconds") for key in ("interval", "largest_gap")}
    interval, gap = (NOTHING if number is None else f"{number:.3g}" for number in numbers.values())
    sampled = say(
        "memory",
        lang,
        probe=used.inputs.get("probe", NOTHING),
        samples=used.inputs.get("num_samples", NOTHING),
        interval=interval,
        gap=gap,
        device=used.inputs.get("device_id", NOTHING),
    )
    yield sampled + peak_time(recorded.run, lang)


def memory_spreads(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Yield the spread over several devices: pipeline stages differ."""
    for name, source in (("mem_used", "by_probe"), ("mem_allocator", "by_allocator")):
        metric = recorded.run.metric(name)
        peaks = list(metric.inputs.get("per_device", {}).values()) if metric and metric.value is not None else []
        if len(peaks) > 1 and _has_memory(recorded.run):
            amounts = {"low": min(peaks), "mean": sum(peaks) / len(peaks), "high": max(peaks)}
            shown = {key: units.gib(amount) for key, amount in amounts.items()}
            yield say("memory_spread", lang, devices=len(peaks), source=say(source, lang), **shown)


def memory_scope(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Explain what was measured on devices without memory of their own."""
    run = recorded.run
    if _has_memory(run):
        yield from [say("memory_host", lang)] if run.job.memory_scope == "host" else beside_memory(run, lang)


def _has_memory(run: Run) -> bool:
    return run.has_results or not isinstance(memory_cell(run), Empty)


def _noted(subject: str) -> Topic:
    """Return a topic: the metrics whose entry has `noted` set to this subject, unless the page has a table of them."""

    def topic(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
        run = recorded.run
        entries = [entry for entry in entries_of(run.manifest) if entry.noted == subject]
        is_tabled = subject == "power" and "telemetry" in KINDS[run.manifest.kind].sections
        if run.has_results and not is_tabled:
            yield from filter(None, (metric_sentence(run, entry, lang) for entry in entries))

    return topic


def mfu(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    if recorded.run.has_results:
        yield from filter(None, [mfu_formula(recorded.run, lang), mfu_peak(recorded.run, lang)])


def mfu_useful(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Yield the useful MFU if part of the work was padding or repeats."""
    run = recorded.run
    useful, whole = run.metric("mfu_useful"), run.metric("mfu")
    if run.has_results and useful and whole and useful.value is not None and useful.value != whole.value:
        yield say("mfu_useful", lang, name=mfu_name(run, lang), share=units.percent(useful.value))


def mfu_others(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Yield MFU by the formulas of published pages, to compare with them."""
    run = recorded.run
    found = [run.metric(name) for name in ("mfu_nominal-6n", "mfu_nominal-2n", "mfu_palm")]
    figures = [
        f"{metric.inputs.get('formula', metric.name.removeprefix('mfu_'))} {units.percent(metric.value)}"
        for metric in found
        if metric is not None and metric.value is not None
    ]
    if figures and run.has_results and mfu_formula(run, lang):
        yield say("mfu_others", lang, name=mfu_name(run, lang), figures=listed(figures, lang))


def aligned(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    verdict = recorded.run.metric(LOSS_ALIGNED.name)
    if verdict and verdict.value is not None and recorded.run.has_results:
        yield verdict_sentence(verdict, lang)


def data(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    for file in recorded.run.job.data_files:
        yield say("data_file", lang, path=file.path, sha256=file.sha256)


SUBJECTS: dict[str, tuple[Topic, ...]] = {
    "measured": (simulated, redacted, made_by),
    "configuration": (profile,),
    "environment": (nodes, card_problems),
    "timing": (steps, recorded_operators, intervals, cpu_others, _noted("timing")),
    "quality": (target, evaluated, parts, _noted("quality")),
    "memory": (memory, memory_spreads, memory_scope, _noted("memory")),
    "power": (_noted("power"),),
    "mfu": (mfu, mfu_useful, mfu_others),
    "alignment": (aligned,),
    "doubts": (doubts,),
    "data": (data,),
}
