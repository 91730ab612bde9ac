"""The card of one run: how it ended, its metrics, and their caveats."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import label, say, usable, words
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.registry import ENTRIES, entries_of
from flagperf.report.document import Block, Bullets, Empty, Fact, Facts, Heading, Paragraph, Status, TableCell, Text
from flagperf.report.sections.alignment_blocks import verdict_sentence
from flagperf.report.sections.operator_tables import operator_blocks, replayed_blocks
from flagperf.report.sections.published_tables import OwnRun, published_results
from flagperf.report.sections.row_tables import figure_table, measured_tables
from flagperf.report.sections.spread import spread_blocks
from flagperf.report.wording import (
    beside_memory,
    card_problems,
    doubts,
    evaluated_sentence,
    interval_range,
    is_published,
    joined,
    measured_cell,
    memory_cell,
    metric_format,
    mfu_name,
    mfu_sentence,
    overrides,
    peak_time,
    profile_sentence,
    recorded_operators,
    shown_unit,
    target_sentence,
    vendor_and_device,
    vendor_word,
    verdict_word,
)
from flagperf.spec.manifest import Quality


def card(recorded: RecordedRun, *, published: bool = True) -> Iterator[Block]:
    """A run that did not succeed shows only the metrics that it measured before it ended."""
    run = recorded.run
    facts = [_status(recorded), *_times(run), *_qualities(run), *_details(run), *_noted(run), *_verdict(run)]
    facts += _labels(recorded)
    if not run.has_results:
        facts = [fact for fact in facts if not isinstance(fact.cell, Empty)]
    yield Heading(_title(run))
    yield Facts(tuple(facts))
    yield from doubt_list(recorded)
    yield from (Paragraph(problem) for problem in card_problems(recorded, "en"))
    yield from (Paragraph(sentence) for sentence in recorded_operators(recorded, "en"))
    yield from figure_table(run, "en")
    tables = operator_blocks if "operator_rows" in KINDS[run.manifest.kind].sections else measured_tables
    yield from tables(run, "en")
    yield from replayed_blocks(run, "en")
    yield from spread_blocks(run, "en")
    if published:
        yield from published_results([run.manifest], [OwnRun(run, say("this_run", "en"))], "en")
    yield Paragraph(f"bundle: {recorded.path}")


def doubt_list(recorded: RecordedRun) -> Iterator[Block]:
    found = tuple(Text(sentence) for sentence in doubts(recorded, "en"))
    if found:
        yield Bullets(found, label("doubts", "en"))


def status_cell(recorded: RecordedRun) -> Status:
    ending = recorded.run.ending
    status = ending.status if ending else recorded.unfinished or "no ending"
    return Status(status, status in ("succeeded", "running"))


def caution(run: Run) -> str:
    """The caveat for comparing figures of this run. Empty for an unchanged published configuration."""
    is_standard = is_published(run) and not run.job.config.deviations
    simulated = say("simulated", "en") if run.simulated else ""
    redacted = say("redacted", "en") if run.redacted else ""
    return _clauses(simulated, redacted, "" if is_standard else profile_sentence(run, "en"))


def _title(run: Run) -> str:
    job = run.job
    device = vendor_and_device(vendor_word(run), job.device_model.short_name)
    parts = [f"{job.case} {job.case_version}", f"profile {job.profile}", device, job.shape, job.precision.name]
    return ", ".join([*parts, *filter(None, [overrides(run)])])


def _status(recorded: RecordedRun) -> Fact:
    ending = recorded.run.ending
    reason = words(usable(ending.message, ending.reason), "en") if ending else _unfinished(recorded)
    return Fact("run", status_cell(recorded), _clauses(reason, caution(recorded.run)))


def _unfinished(recorded: RecordedRun) -> str:
    if recorded.unfinished is None or (recorded.unfinished == "unknown" and not recorded.host):
        return say("no_ending", "en")
    return say(recorded.unfinished, "en", host=recorded.host)


def _labels(recorded: RecordedRun) -> Iterator[Fact]:
    """What people said about it later."""
    labels = recorded.labels
    if labels.tags:
        yield Fact("tags", Text(""), ", ".join(labels.tags))
    if labels.note:
        yield Fact("note", Text(""), labels.note)


def _times(run: Run) -> Iterator[Fact]:
    yield Fact("e2e_time", measured_cell(run, "e2e_time", units.one_decimal, "s"), _time_note(run))
    for entry in (ENTRIES[name] for name in KINDS[run.manifest.kind].speeds):
        cell = measured_cell(run, entry.name, entry.format, shown_unit(run, entry))
        yield Fact(entry.name, cell, _interval(run, entry.name))
    if not KINDS[run.manifest.kind].has_steps:
        return
    percentiles = [measured_cell(run, f"step_time_{each}", units.milliseconds) for each in ("p50", "p90", "p99")]
    yield Fact("step time", joined(percentiles, " / ", "ms"), "p50 / p90 / p99")


def _time_note(run: Run) -> str:
    parts = {"start-up": run.metric("init_time"), "training": run.metric("train_time")}
    found = {name: metric.value for name, metric in parts.items() if metric and metric.value is not None}
    return ", ".join(f"{name} {units.one_decimal(value)} s" for name, value in found.items())


def _interval(run: Run, name: str) -> str:
    metric = run.metric(name)
    return interval_range(metric, metric_format(run.manifest, name), "en") if metric else ""


def _qualities(run: Run) -> Iterator[Fact]:
    yield from (_quality(run, quality) for quality in run.manifest.qualities)
    is_own = "loss" in {quality.name for quality in run.manifest.qualities}
    if "losses" in KINDS[run.manifest.kind].metrics and not is_own:
        losses = [measured_cell(run, name, units.loss) for name in ("loss_first", "loss")]
        yield _fact("loss", joined(losses, " -> "), "first step -> last step")


def _quality(run: Run, quality: Quality) -> Fact:
    is_targeted = run.manifest.target is not None and run.manifest.target.metric == quality.name
    cell = measured_cell(run, quality.name, metric_format(run.manifest, quality.name))
    target = target_sentence(run, "en") if is_targeted else ""
    return _fact(quality.name, cell, _clauses(target, evaluated_sentence(run, quality.name, "en")))


def _details(run: Run) -> Iterator[Fact]:
    yield _fact("mem", memory_cell(run, "GiB"), _memory_note(run))
    if "flops" in KINDS[run.manifest.kind].metrics:
        yield _fact(mfu_name(run, "en"), measured_cell(run, "mfu", units.percent), mfu_sentence(run, "en"))
    if KINDS[run.manifest.kind].has_steps:
        yield _fact("padding ratio", measured_cell(run, "padding_ratio", units.percent))
        yield _fact("steps kept", measured_cell(run, "steps_kept", units.count))
        yield _fact("steps dropped", measured_cell(run, "steps_dropped", units.count))
    if run.job.memory_scope == "host":  # devices are CPU cores
        yield _fact("cpu others", measured_cell(run, "cpu_others", units.percent), "of the cores, by other processes")


def _noted(run: Run) -> Iterator[Fact]:
    """Metrics with a value that are shown nowhere else on the card."""
    for entry in entries_of(run.manifest):
        cell = measured_cell(run, entry.name, entry.format, shown_unit(run, entry))
        if entry.noted and not isinstance(cell, Empty):
            yield Fact(entry.title["en"].lower(), cell, entry.remark.get("en", ""))


def _memory_note(run: Run) -> str:
    used = run.metric("mem_used")
    if used is None or used.value is None:
        return ""
    when = peak_time(run, "en")
    read = f"peak on {used.inputs.get('device_id')}{when}, read by {used.inputs.get('probe')}"
    if run.job.memory_scope == "host":
        return f"host memory of one worker, {read}"
    return _clauses(f"of one device, {read}", *beside_memory(run, "en"))


def _verdict(run: Run) -> Iterator[Fact]:
    """Nothing if the run was not compared with a reference."""
    verdict = run.metric(LOSS_ALIGNED.name)
    if verdict is None:
        return
    if verdict.value is None:
        yield Fact("loss aligned", Empty(verdict.reason or "not_measured", usable(verdict.message, verdict.detail)))
    else:
        status = Status(verdict_word(verdict.value), bool(verdict.value))
        yield Fact("loss aligned", status, verdict_sentence(verdict, "en"))


def _fact(label: str, cell: TableCell, note: str = "") -> Fact:
    """A fact that drops its note if the value is missing."""
    return Fact(label, cell, "" if isinstance(cell, Empty) else note)


def _clauses(*texts: str) -> str:
    return "; ".join(filter(None, texts))
