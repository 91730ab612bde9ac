"""The headings of a page, and the engine of an inference case."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.report.document import Block, Fact, Facts, Heading
from flagperf.report.sections.columns import COLUMNS
from flagperf.report.sections.naming import vendor_and_device, vendor_title
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import listed, say


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
