"""Headline from Summary, caveats, headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, listed, meaning, say, usable, web, words
from flagperf.metrics.entry import Metric
from flagperf.metrics.registry import entries_of, entry_of, headline_names
from flagperf.report.document import (
    Block,
    Empty,
    Fact,
    Facts,
    Head,
    Heading,
    Headline,
    KeyFigure,
    Status,
    Table,
    TableCell,
    Text,
    Value,
)
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import COLUMNS
from flagperf.report.wording import (
    changes_sentence,
    interval_range,
    is_published,
    joined,
    layout,
    measured_cell,
    memory_cell,
    of_measured_peak,
    profile_verdict,
    run_configuration,
    shown_unit,
    target_sentence,
    vendor_and_device,
    vendor_title,
)
from flagperf_publish.pages.timeline import ChartedRuns

# The card at the head of a page: what was run, how it ended, what came out.


MAX_FIGURES = 6
"""Of a case whose figures are all alike."""

NAMED_FILES = 2


def headlines(page: ChartedRuns) -> Iterator[Block]:
    """One card for each run. Of several, a card has the main figures only; the tables have all."""
    for number, recorded in enumerate(page.runs, start=1):
        run, is_alone = recorded.run, len(page.runs) == 1
        shown = run_configuration(run, page.lang)
        title = choose(run.manifest.title, page.lang)
        found = _figures(run, page.lang)
        yield Headline(
            title=title if is_alone else web("of_row", page.lang, row=number, configuration=shown),
            facts=tuple(_facts(run, page.lang, short=not is_alone)),
            status=_status(run, page.lang),
            reason=_reason(run, page.lang),
            cautions=tuple(_cautions(page, recorded)),
            figures=tuple(each for each in found if is_alone or each.headline),
        )


def page_title(page: PageRuns) -> str:
    cards = [run_configuration(recorded.run, page.lang) for recorded in page.runs]
    title = choose(page.manifest.title, page.lang)
    return say("line", page.lang, label=title, value=listed(list(dict.fromkeys(cards)), page.lang))


def _facts(run: Run, lang: Lang, *, short: bool) -> Iterator[Fact]:
    job = run.job
    device = vendor_and_device(vendor_title(run, lang), job.device_model.short_name)
    yield from () if short else (Fact(web("case", lang), Text(f"{job.case} {job.case_version}")),)
    yield Fact(web("card", lang), Text(device))
    yield Fact(web("shape", lang), Text(job.shape))
    if "parallel" in run.manifest.page.columns and job.world_size > 1:
        yield Fact(web("layout", lang), Text(layout(run)))
    yield Fact(web("precision", lang), Text(job.precision.name))
    yield Fact(web("profile", lang), Text(job.profile))
    yield Fact(web("date", lang), Text(run.created[:10]))
    yield Fact(web("run", lang), Text(run.id))


def _status(run: Run, lang: Lang) -> Status:
    status = run.ending.status if run.ending else "none"
    return Status(web(f"status_{status}", lang), status == "succeeded")


def _reason(run: Run, lang: Lang) -> str:
    if run.ending is None:
        return say("no_ending", lang)
    return words(usable(run.ending.message, run.ending.reason), lang)


def _cautions(page: ChartedRuns, recorded: RecordedRun) -> Iterator[str]:
    run, lang = recorded.run, page.lang
    if run.simulated:
        yield say("simulated", lang)
    if run.redacted:
        yield say("redacted", lang)
    changed = changes_sentence(run, lang)
    if not is_published(run) or changed:
        yield clauses([profile_verdict(run, lang), changed and say("changed", lang, changes=changed)], lang)
    course = page.courses.get(run.id)
    if course and course.missing:
        files = listed(course.missing[:NAMED_FILES], lang)
        more = len(course.missing) - NAMED_FILES
        yield web("raw_missing", lang, files=web("raw_more", lang, file=files, count=more) if more > 0 else files)


# --- figures --------------------------------------------------------------------------------------------------------


def _figures(run: Run, lang: Lang) -> list[KeyFigure]:
    """The main ones first. What does not apply is left out; what is missing says why."""
    found = [*_metrics(run, _main(run), lang, headline=True), *_metrics(run, _others(run), lang), *_joined(run, lang)]
    if not run.has_results:
        found = [figure for figure in found if not isinstance(figure.cell, Empty)]
    return [each for each in found if not (isinstance(each.cell, Empty) and each.cell.reason == "not_applicable")]


def _main(run: Run) -> list[str]:
    """The main figures, or the first of a case whose figures are all alike."""
    names = headline_names(run.manifest.kind, run.manifest.figures)
    return list(names or [figure.name for figure in run.manifest.figures[:MAX_FIGURES]])


def _others(run: Run) -> list[str]:
    qualities = [quality.name for quality in run.manifest.qualities]
    speeds = [name for name in KINDS[run.manifest.kind].speeds if name not in _main(run)]
    power = [name for name in ("power_mean", "energy", "utilisation_mean") if _has(run, name)]
    return [*qualities, "e2e_time", *speeds, *power]


def _has(run: Run, name: str) -> bool:
    metric = run.metric(name)
    return metric is not None and metric.value is not None


def _metrics(run: Run, names: list[str], lang: Lang, *, headline: bool = False) -> Iterator[KeyFigure]:
    for name in names:
        entry, metric = entry_of(run.manifest, name), run.metric(name)
        if entry is None:
            continue
        title = choose(run.manifest.page.titles.get(name, {}), lang) or choose(entry.title, lang)
        title = of_measured_peak(title, [metric.marks] if metric else [], lang)
        note = interval_range(metric, entry.format, lang) if metric else ""
        if run.manifest.target is not None and run.manifest.target.metric == name:
            note = clauses([note, target_sentence(run, lang) if run.has_results else ""], lang)
        unit = shown_unit(run, entry)
        cell = measured_cell(run, name, entry.format, "" if unit == "fraction" else unit)
        yield KeyFigure(title, cell, note, headline, "" if title == name else name)


def _joined(run: Run, lang: Lang) -> Iterator[KeyFigure]:
    """Several metrics in one figure."""
    kind, manifest = KINDS[run.manifest.kind], run.manifest
    yield KeyFigure(web("figure_mem", lang), memory_cell(run, "GiB"), title="mem")
    if kind.has_steps:
        times = [measured_cell(run, f"step_time_{each}", units.milliseconds) for each in ("p50", "p90", "p99")]
        yield KeyFigure(web("figure_step_time", lang), joined(times, " / ", "ms"))
    if "losses" in kind.metrics and all(quality.name != "loss" for quality in manifest.qualities):
        losses: list[Value | Empty] = [measured_cell(run, name, units.loss) for name in ("loss_first", "loss")]
        yield KeyFigure(web("figure_loss", lang), joined(losses, " → "))


# Marks and missing values of runs, each with what it means and what was observed.


UNREMARKABLE = ("not_applicable",)
"""Reasons that say nothing about a run."""


def caveats(page: PageRuns) -> Iterator[Block]:
    """Nothing if every figure is there and unmarked."""
    marked = [(recorded.run, page.mark(number)) for number, recorded in enumerate(page.runs, start=1)]
    rows = [row for run, mark in marked for row in _rows(run, page.lang, mark)]
    if rows:
        yield Heading(web("caveats", page.lang), level=2)
        heads = tuple(Head(web(f"caveat_{name}", page.lang)) for name in ("code", "figure", "meaning"))
        yield Table(heads, tuple(rows))


def _rows(run: Run, lang: Lang, mark: str) -> Iterator[tuple[TableCell, ...]]:
    """One row for each code and what was observed. What differs only in the figure that it names is one row too: a
    probe that cannot read the power cannot read the energy either."""
    found: dict[tuple[str, str], list[str]] = {}
    groups: dict[tuple[str, str], str] = {}
    entries = {entry.name: entry for entry in entries_of(run.manifest)}
    for metric in run.metrics:
        entry = entries.get(metric.name)
        for observed in _codes(metric, lang):
            found.setdefault(observed, []).append(choose(entry.title, lang) if entry else metric.name)
            groups.setdefault(observed, entry.group if entry else "")
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for observed, group in groups.items():
        rows.setdefault((observed[0], group), []).append(observed)
    for (code, _), alike in rows.items():
        figures = listed(list(dict.fromkeys(title for each in alike for title in found[each])), lang)
        text = clauses([meaning(code, lang), _details([detail for _, detail in alike], lang)], lang)
        yield Text(f"{code} {mark}".strip(), strong=True), Text(figures), Text(text)


def _details(details: Sequence[str], lang: Lang) -> str:
    different = list(dict.fromkeys(filter(None, details)))
    if len(different) < 2:
        return "".join(different)
    return web("similar", lang, detail=different[0], count=len(different) - 1)


def _codes(metric: Metric, lang: Lang) -> Iterator[tuple[str, str]]:
    """Code, and what was observed."""
    if metric.value is None:
        if metric.reason and metric.reason not in UNREMARKABLE:
            yield metric.reason, words(usable(metric.message, metric.detail), lang)
        return
    yield from ((mark, "") for mark in metric.marks)


# The headings of a page, and the engine of an inference case.


def subject(page: PageRuns) -> Iterator[Block]:
    yield Heading(say("heading", page.lang, subject=_cards(page)))
    yield Heading(page.label("environment"), level=4)


def machine(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("machine_section"))
    yield Heading(f"3.1 {_cards(page)}", level=4)


def engine(page: PageRuns) -> Iterator[Block]:
    cells = [COLUMNS["engine"].of_run(recorded.run, page.lang) for recorded in page.runs]
    facts = [Fact(page.with_rows(page.label("engine"), rows), cell) for cell, rows in page.rows_of(cells).items()]
    yield Facts(tuple(facts), page.label("engine_section"))


def results(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("results"))


def _cards(page: PageRuns) -> str:
    names = [
        vendor_and_device(vendor_title(recorded.run, page.lang), recorded.run.job.device_model.short_name)
        for recorded in page.runs
    ]
    return listed(list(dict.fromkeys(names)), page.lang)
