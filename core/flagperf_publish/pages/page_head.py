"""Headline from Summary, caveats, headings."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.messages import choose, clauses, listed, meaning, say, usable, web, words
from flagperf.metrics.registry import entries_of
from flagperf.report.document import (
    Block,
    Empty,
    Facts,
    Head,
    Heading,
    Headline,
    KeyFigure,
    LabelledCell,
    Status,
    Table,
    Text,
    Value,
)
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import COLUMNS
from flagperf.report.summary import summarise
from flagperf.report.wording import run_configuration, vendor_and_device, vendor_title
from flagperf_publish.pages.timeline import ChartedRuns

# The card at the head of a page: what was run, how it ended, what came out.


NAMED_FILES = 2


def headlines(page: ChartedRuns) -> Iterator[Block]:
    """Show one card for each run. Of several, a card has the headline figures only; the tables have all."""
    lang, is_alone = page.lang, len(page.runs) == 1
    for number, recorded in enumerate(page.runs, start=1):
        found = summarise(recorded, lang)
        about = found.identity
        shown = run_configuration(recorded.run, lang)
        figures = []
        for each in found.figures:
            if each.is_headline or (is_alone and not each.is_detail):
                cell = each.cell
                if isinstance(cell, Value):  # terminals have an arrow of two letters
                    cell = Value(cell.text.replace(" -> ", " → "), cell.unit, cell.marks)
                assert isinstance(cell, Value | Empty)
                name = "" if each.name == each.title else each.name
                figures.append(KeyFigure(each.title, cell, each.note, each.is_headline, name))
        facts = {
            "case": f"{about.case} {about.version}" if is_alone else "",
            "card": vendor_and_device(about.vendor_title, about.card),
            "shape": about.shape,
            "layout": about.layout,
            "precision": about.precision,
            "profile": about.profile,
            "date": about.created[:10],
            "run": about.run,
        }
        course = page.courses.get(about.run)
        missing = course.missing if course else ()
        files, more = listed(missing[:NAMED_FILES], lang), len(missing) - NAMED_FILES
        files = web("raw_more", lang, file=files, count=more) if more > 0 else files
        yield Headline(
            title=about.title if is_alone else web("of_row", lang, row=number, configuration=shown),
            facts=tuple(LabelledCell(web(name, lang), Text(text)) for name, text in facts.items() if text),
            status=Status(web(f"status_{found.status}", lang), found.status_cell.good),
            reason=found.reason,
            cautions=(*found.cautions, *([web("raw_missing", lang, files=files)] if missing else [])),
            figures=tuple(figures),
        )


def page_title(page: PageRuns) -> str:
    cards = [run_configuration(recorded.run, page.lang) for recorded in page.runs]
    title = choose(page.manifest.title, page.lang)
    return say("line", page.lang, label=title, value=listed(list(dict.fromkeys(cards)), page.lang))


# Marks and missing values of runs, each with what it means and what was observed.


UNREMARKABLE = ("not_applicable",)
"""Reasons that say nothing about a run."""


def caveats(page: PageRuns) -> Iterator[Block]:
    """Yield a row for each code and what was observed: nothing if every figure is there and unmarked.

    What differs only in the figure that it names is one row: a probe that cannot read the power cannot read the energy.
    """
    lang, rows = page.lang, []
    for number, recorded in enumerate(page.runs, start=1):
        entries = {entry.name: entry for entry in entries_of(recorded.run.manifest)}
        titles: dict[tuple[str, str], list[str]] = {}  # code and what was observed -> figures
        groups: dict[tuple[str, str], str] = {}
        for metric in recorded.run.metrics:
            entry, observed = entries.get(metric.name), [(mark, "") for mark in metric.marks]
            if metric.value is None:
                detail = words(usable(metric.message, metric.detail), lang)
                observed = [(metric.reason, detail)] if metric.reason and metric.reason not in UNREMARKABLE else []
            for each in observed:
                titles.setdefault(each, []).append(choose(entry.title, lang) if entry else metric.name)
                groups.setdefault(each, entry.group if entry else "")
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for each, group in groups.items():
            alike.setdefault((each[0], group), []).append(each)
        for (code, _), together in alike.items():
            details = [detail for _, detail in together if detail]
            said = "".join(details[:1])
            if len(details) > 1:
                said = web("similar", lang, detail=said, count=len(details) - 1)
            figures = listed(list(dict.fromkeys(title for each in together for title in titles[each])), lang)
            text = clauses([meaning(code, lang), said], lang)
            rows.append((Text(f"{code} {page.mark(number)}".strip(), strong=True), Text(figures), Text(text)))
    if rows:
        yield Heading(web("caveats", lang), level=2)
        heads = tuple(Head(web(f"caveat_{name}", lang)) for name in ("code", "figure", "meaning"))
        yield Table(heads, tuple(rows))


# The headings of a page, and the engine of an inference case.


def subject(page: PageRuns) -> Iterator[Block]:
    yield Heading(say("heading", page.lang, subject=_cards(page)))
    yield Heading(page.label("environment"), level=4)


def machine(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("machine_section"))
    yield Heading(f"3.1 {_cards(page)}", level=4)


def engine(page: PageRuns) -> Iterator[Block]:
    cells = [COLUMNS["engine"].of_run(recorded.run, page.lang) for recorded in page.runs]
    facts = [
        LabelledCell(page.with_rows(page.label("engine"), rows), cell) for cell, rows in page.rows_of(cells).items()
    ]
    yield Facts(tuple(facts), page.label("engine_section"))


def results(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("results"))


def _cards(page: PageRuns) -> str:
    names = [
        vendor_and_device(vendor_title(recorded.run, page.lang), recorded.run.job.device_model.short_name)
        for recorded in page.runs
    ]
    return listed(list(dict.fromkeys(names)), page.lang)
