"""Summary: what matters of a run, in the order in which it is read.

The overview in a terminal, the head of a page and `run --repeat` format it and choose nothing. What shows many runs
(`runs list`, a comparison, the leaderboard) has the same choice of names from `metrics.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, listed, say, usable, web, words
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import ENTRIES, entries_of, headline_names
from flagperf.report.document import Empty, Status, TableCell, Value
from flagperf.report.sections.alignment_blocks import verdict_sentence
from flagperf.report.wording import (
    Formatter,
    beside_memory,
    evaluated_sentence,
    interval_range,
    is_published,
    joined,
    layout,
    measured_cell,
    mfu_sentence,
    of_measured_peak,
    overrides,
    peak_time,
    profile_sentence,
    shown_unit,
    target_sentence,
    vendor_title,
    vendor_word,
    verdict_word,
)

MAX_ROW_FIGURES = 6
"""Headlines of a case whose figures are all alike."""


class Identity(msgspec.Struct, frozen=True):
    run: str
    created: str
    case: str
    version: int
    title: str
    profile: str
    vendor: str
    """The word that a command takes. `vendor_title` is the name."""
    vendor_title: str
    card: str
    shape: str
    layout: str
    """Empty for a case without one."""
    precision: str
    changes: str
    """What differs from the profile."""


class SummaryFigure(msgspec.Struct, frozen=True):
    name: str
    """The metric or the column. Empty for several metrics in one cell that no page has as a column."""
    label: str
    """What a line of a terminal begins with."""
    title: str
    """What it is, in words."""
    cell: TableCell
    note: str = ""
    """How far it may be off, and its target."""
    detail: str = ""
    """How it came about. A page has that in its notes."""
    is_headline: bool = False
    is_detail: bool = False
    """The head of a page leaves it out."""

    @property
    def in_line(self) -> str:
        """Return `p_core 1130.9 samples/s*`, as `runs list` has it. An asterisk says that caveats apply."""
        cell = self.cell
        if not isinstance(cell, Value):
            return ""
        return f"{self.name} {cell.text} {cell.unit}".rstrip() + ("*" if cell.marks else "")


class Summary(msgspec.Struct, frozen=True):
    identity: Identity
    status: str
    """How the run ended; else `running`, `killed`, `unknown`, `no_ending`."""
    reason: str
    """Why it ended so."""
    cautions: tuple[str, ...]
    """What a reader must know before comparing any figure. Empty for an unchanged published configuration."""
    figures: tuple[SummaryFigure, ...]
    """Figures that do not apply are left out; a run without results has only those that were measured."""
    result: SummaryFigure | None = None
    """The first headline with a value, of those that the page of the case has."""

    @property
    def status_cell(self) -> Status:
        return Status(self.status, self.status in ("succeeded", "running"))


def summarise(recorded: RecordedRun, lang: Lang = "en") -> Summary:
    run, ending = recorded.run, recorded.run.ending
    if ending is not None:
        reason = words(usable(ending.message, ending.reason), lang)
    elif recorded.unfinished is None or (recorded.unfinished == "unknown" and not recorded.host):
        reason = say("no_ending", lang)
    else:
        reason = say(recorded.unfinished, lang, host=recorded.host)
    cautions = [say(name, lang) for name in ("simulated", "redacted") if getattr(run, name)]
    if not is_published(run) or run.job.config.deviations:
        cautions.append(profile_sentence(run, lang))
    figures = []
    for each in _figures(run, lang):
        # Somebody asked for the verdict on the loss, so it is shown too where it does not apply.
        applies = each.name == LOSS_ALIGNED.name or getattr(each.cell, "reason", "") != "not_applicable"
        if not isinstance(each.cell, Empty) or (run.has_results and applies):
            figures.append(each)
    by_name = {each.name: each for each in figures if isinstance(each.cell, Value)}
    manifest = run.manifest
    headlines = headline_names(manifest.kind, manifest.figures, manifest.page.columns) if run.has_results else ()
    return Summary(
        identity=identity_of(run, lang),
        status=ending.status if ending else recorded.unfinished or "no_ending",
        reason=reason,
        cautions=tuple(cautions),
        figures=tuple(figures),
        result=next((by_name[name] for name in headlines if name in by_name), None),
    )


def identity_of(run: Run, lang: Lang) -> Identity:
    job = run.job
    has_layout = "parallel" in run.manifest.page.columns and job.world_size > 1
    return Identity(
        run=run.id,
        created=run.created,
        case=job.case,
        version=job.case_version,
        title=choose(run.manifest.title, lang),
        profile=job.profile,
        vendor=vendor_word(run),
        vendor_title=vendor_title(run, lang),
        card=job.device_model.short_name,
        shape=job.shape,
        layout=layout(run) if has_layout else "",
        precision=job.precision.name,
        changes=overrides(run),
    )


class Joined(msgspec.Struct, frozen=True):
    """Several metrics in one cell."""

    column: str
    """The column of a page that joins them too, if there is one."""
    metrics: tuple[str, ...]
    format: Formatter
    separator: str
    unit: str
    about: Callable[[Run, Lang], str]
    """Says what is joined."""


def _about_memory(run: Run, lang: Lang) -> str:
    used = run.metric("mem_used")
    if used is None:
        return ""
    read = {"device": used.inputs.get("device_id"), "when": peak_time(run, lang), "probe": used.inputs.get("probe")}
    if run.job.memory_scope == "host":
        return say("memory_of_worker", lang, **read)
    return clauses([say("memory_of_device", lang, **read), *beside_memory(run, lang)], lang)


JOINED = {
    "step_time": Joined(
        "",
        ("step_time_p50", "step_time_p90", "step_time_p99"),
        units.milliseconds,
        " / ",
        "ms",
        lambda _run, _lang: "p50 / p90 / p99",
    ),
    "loss": Joined("", ("loss_first", "loss"), units.loss, " -> ", "", lambda _run, lang: say("loss_parts", lang)),
    "mem": Joined("mem", ("mem_used", "mem_total"), units.gib, "/", "GiB", _about_memory),
}
"""What Kind.summary may name besides metrics, and QUALITIES: those of the case."""

QUALITIES = "qualities"


def _figures(run: Run, lang: Lang) -> Iterator[SummaryFigure]:
    manifest, kind = run.manifest, KINDS[run.manifest.kind]
    entries = {entry.name: entry for entry in entries_of(manifest)}
    headlines = headline_names(manifest.kind, manifest.figures)
    of_rows = [figure.name for figure in manifest.figures]
    for name in [name for name in of_rows if name in headlines] or of_rows[:MAX_ROW_FIGURES]:
        yield _metric_figure(run, entries[name], lang, is_headline=True)
    qualities = [quality.name for quality in manifest.qualities]
    for name in kind.summary:
        if name == QUALITIES:
            yield from (_metric_figure(run, entries[each], lang) for each in qualities)
        elif name in JOINED:
            if name not in qualities:
                parts = JOINED[name]
                values = [measured_cell(run, each, parts.format) for each in parts.metrics]
                cell: TableCell = joined(values, parts.separator, parts.unit)
                detail = "" if isinstance(cell, Empty) else parts.about(run, lang)
                title = web(f"figure_{name}", lang)
                yield SummaryFigure(parts.column, name.replace("_", " "), title, cell, detail=detail)
        elif not entries[name].noted:
            yield _metric_figure(run, entries[name], lang, is_headline=name in headlines)
        elif _has_value(run, name):
            yield _described_figure(run, entries[name], lang, is_detail=False)
    for entry in entries.values():
        is_about = entry.name != "cpu_others" or run.job.memory_scope == "host"  # devices are CPU cores
        if entry.name in kind.details and is_about:
            yield _described_figure(run, entry, lang, is_detail=True)
    for entry in entries.values():
        if entry.noted and entry.name not in kind.summary and _has_value(run, entry.name):
            yield _described_figure(run, entry, lang, is_detail=True)
    if (verdict := run.metric(LOSS_ALIGNED.name)) is not None:
        cell = measured_cell(run, LOSS_ALIGNED.name, verdict_word)
        if verdict.value is not None:
            cell = Status(verdict_word(verdict.value), bool(verdict.value))
        yield SummaryFigure(
            LOSS_ALIGNED.name,
            "loss aligned",
            choose(LOSS_ALIGNED.title, lang),
            cell,
            detail=verdict_sentence(verdict, lang),
            is_detail=True,
        )


def _metric_figure(run: Run, entry: MetricEntry, lang: Lang, *, is_headline: bool = False) -> SummaryFigure:
    metric, manifest = run.metric(entry.name), run.manifest
    unit = shown_unit(run, entry)
    cell = measured_cell(run, entry.name, entry.format, "" if unit == "fraction" else unit)
    title = choose(manifest.page.titles.get(entry.name, {}), lang) or choose(entry.title, lang)
    marks = [metric.marks] if metric else []
    note = detail = ""
    if metric is not None and metric.value is not None:
        is_target = manifest.target is not None and manifest.target.metric == entry.name
        interval = interval_range(metric, entry.format, lang)
        note = clauses([interval, target_sentence(run, lang) if is_target else ""], lang)
        evaluated = evaluated_sentence(run, entry.name, lang)
        detail = DETAILS[entry.name](run, lang) if entry.name in DETAILS else evaluated
    return SummaryFigure(
        name=entry.name,
        label=of_measured_peak(entry.head or entry.name, marks, lang),
        title=of_measured_peak(title, marks, lang),
        cell=cell,
        note=note,
        detail=detail,
        is_headline=is_headline,
    )


def _described_figure(run: Run, entry: MetricEntry, lang: Lang, *, is_detail: bool) -> SummaryFigure:
    """Return a figure that its title and its remark explain."""
    unit, title = shown_unit(run, entry), choose(entry.title, lang)
    cell = measured_cell(run, entry.name, entry.format, "" if unit == "steps" else unit)
    label = title.lower() if entry.noted else entry.name.replace("_", " ")
    remark = "" if isinstance(cell, Empty) else choose(entry.remark, lang)
    return SummaryFigure(entry.name, label, title, cell, detail=remark, is_detail=is_detail)


def _has_value(run: Run, name: str) -> bool:
    metric = run.metric(name)
    return metric is not None and metric.value is not None


def _phases(run: Run, lang: Lang) -> str:
    """Return `start-up time 11.2 s, training time 4.0 s`."""
    found = []
    for name in KINDS[run.manifest.kind].phases:
        entry, metric = ENTRIES[name], run.metric(name)
        if metric is not None and metric.value is not None:
            value = f"{entry.format(metric.value)} {shown_unit(run, entry)}"
            found.append(f"{choose(entry.title, lang).lower()} {value}")
    return listed(found, lang)


DETAILS: dict[str, Callable[[Run, Lang], str]] = {"e2e_time": _phases, "mfu": mfu_sentence}
