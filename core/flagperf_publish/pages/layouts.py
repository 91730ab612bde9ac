"""ONE list of sections: in the Markdown page, the HTML page or both."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from flagperf.bundle.run_record import RecordedRun
from flagperf.errors import BadInput, MissingPart
from flagperf.kinds import KINDS
from flagperf.messages import Lang, web
from flagperf.metrics.alignment import LossCurve
from flagperf.plausibility.doubts import refusals
from flagperf.report.document import Block, Document, Fold, Heading, Paragraph, Table
from flagperf.report.page_runs import PageRuns, page_runs
from flagperf.report.sections.operator_tables import operators, replayed
from flagperf.report.sections.published_tables import published
from flagperf.report.sections.result_tables import check_layout, general, performance
from flagperf.report.sections.row_tables import figures, measured
from flagperf.report.sections.spread import spread, whole_spread
from flagperf.report.wording import run_configuration
from flagperf.text import pip_command
from flagperf_publish.pages.notes import notes
from flagperf_publish.pages.page_head import caveats, engine, headlines, machine, page_title, results, subject
from flagperf_publish.pages.row_charts import row_charts
from flagperf_publish.pages.run_charts import course_charts, device_charts, spread_charts, step_histogram, time_shares
from flagperf_publish.pages.setup import (
    batch_sizes,
    dataset,
    downloads,
    environment,
    settings,
    strategies,
    telemetry,
    weights,
)
from flagperf_publish.pages.timeline import ChartedRuns, RunCourse
from flagperf_publish.render.html import to_html as render_html
from flagperf_publish.render.markdown import to_markdown

# The published page of a case on one vendor's cards, built entirely from the bundles of its runs.


Section = Callable[[PageRuns], Iterator[Block]]
P = TypeVar("P", bound=PageRuns)

SECTIONS: dict[str, Section] = {
    "downloads": downloads,
    "subject": subject,
    "dataset": dataset,
    "weights": weights,
    "machine": machine,
    "environment": environment,
    "strategies": strategies,
    "engine": engine,
    "results": results,
    "batch_sizes": batch_sizes,
    "general": general,
    "performance": performance,
    "figures": figures,
    "rows": measured,
    "operator_rows": operators,
    "replayed": replayed,
    "telemetry": telemetry,
    "published": published,
    "spread": spread,
    "notes": notes,
}


def page(
    runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False, published: bool | None = None
) -> str:
    """The page as Markdown."""
    return to_markdown(page_document(runs, lang, allow_simulated=allow_simulated, published=published))


def page_document(
    runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False, published: bool | None = None
) -> Document:
    """Raises BadInput if the runs do not belong on one page, figures contradict each other, or the case's page layout
    uses an unknown name."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated, published=published)
    check_layout(content.manifest)
    refuse_contradictions(content.runs)
    names = KINDS[content.manifest.kind].sections
    return Document(lang, tuple(block for name in names for block in SECTIONS[name](content)))


def refuse_contradictions(runs: Sequence[RecordedRun]) -> None:
    """Raise one BadInput that lists every broken rule with its run and figures."""
    broken = [f"run {recorded.run.id}: {seen.message}" for recorded in runs for seen in refusals(recorded)]
    if broken:
        raise BadInput(f"no page was written because figures contradict each other: {'; '.join(broken)}")


# The page with charts (`report --format html`): what a person looks at first comes first, and detail is folded. It
# has the sections of the published page, in another order, and charts over time from the raw files of the runs.


MAX_CHARTED = 8
"""So many runs of a page have charts of their own."""

RunSection = Callable[[ChartedRuns, RecordedRun], Iterator[Block]]


def _row_charts(page: ChartedRuns, recorded: RecordedRun) -> Iterator[Block]:
    return row_charts(recorded.run, page.lang)


OF_RUN: tuple[RunSection, ...] = (_row_charts, step_histogram, device_charts, spread_charts)

OPEN_ROWS = 12
"""A table of so many published results is shown open."""


def web_document(
    runs: Sequence[RecordedRun],
    lang: Lang,
    *,
    courses: Mapping[str, RunCourse],
    reference: LossCurve | None = None,
    allow_simulated: bool = False,
    published: bool | None = None,
) -> Document:
    """`courses` by run id. Raises BadInput as page_document does."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated, published=published)
    check_layout(content.manifest)
    refuse_contradictions(content.runs)
    content = ChartedRuns(content.runs, content.manifest, lang, reference, published, courses)
    blocks = [
        *headlines(content),
        *_titled("course" if KINDS[content.manifest.kind].has_steps else "charts", content, _charts),
        *_titled("results", content, *_sections(content, "performance", "figures")),
        *_titled("rows", content, _row_tables),
        *_titled("devices", content, *_spread(content)),
        *_titled("published", content, _published),
        *caveats(content),
        *_titled("configuration", content, settings, *_sections(content, "strategies", "engine", "batch_sizes")),
        *_titled("environment", content, *_sections(content, "environment")),
        *_titled("details", content, _details),
    ]
    return Document(lang, tuple(blocks), page_title(content))


def to_html(document: Document) -> str:
    """One file that needs nothing else. Raises MissingPart if it has charts and what draws them is not installed."""
    try:
        return render_html(document)
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        raise _cannot_draw() from None


def check_charts() -> None:
    """Raises MissingPart if what draws charts is not installed."""
    if importlib.util.find_spec("vl_convert") is None:
        raise _cannot_draw()


def _cannot_draw() -> MissingPart:
    command = pip_command("install", "flagperf[html]")
    return MissingPart(f"a page with charts needs vl-convert-python, which draws them: `{command}`")


def _sections(page: PageRuns, *names: str) -> list[Section]:
    """Those that the kind of the case has."""
    return [SECTIONS[name] for name in names if name in KINDS[page.manifest.kind].sections]


def _spread(page: PageRuns) -> list[Section]:
    return [whole_spread] if _sections(page, "spread") else []


def _titled(name: str, page: P, *sections: Callable[[P], Iterator[Block]]) -> Iterator[Block]:
    """Nothing without content."""
    blocks = [block for section in sections for block in section(page)]
    if blocks:
        yield Heading(web(name, page.lang), level=2)
        yield from blocks


def _charts(page: ChartedRuns) -> Iterator[Block]:
    """Those that runs share, then those of each run, folded where there are several."""
    yield from time_shares(page)
    yield from course_charts(page)
    for number, recorded in enumerate(page.runs[:MAX_CHARTED], start=1):
        own = tuple(block for section in OF_RUN for block in section(page, recorded))
        if len(page.runs) == 1:
            yield from own
        elif own:
            configuration = run_configuration(recorded.run, page.lang)
            yield Fold(web("of_row", page.lang, row=number, configuration=configuration), own)
    if len(page.runs) > MAX_CHARTED:
        yield Paragraph(web("fewer_charts", page.lang, row=MAX_CHARTED))


def _row_tables(page: PageRuns) -> Iterator[Block]:
    for section in _sections(page, "rows", "operator_rows", "replayed"):
        yield from section(page)


def _published(page: PageRuns) -> Iterator[Block]:
    """The heading says what it is."""
    for section in _sections(page, "published"):
        for block in section(page):
            is_short = isinstance(block, Table) and len(block.rows) <= OPEN_ROWS
            yield msgspec.structs.replace(block, title="", collapsed=False) if is_short else block


def _details(page: PageRuns) -> Iterator[Block]:
    yield Fold(page.label("general"), tuple(SECTIONS["general"](page)))
    yield Fold(page.label("notes"), tuple(SECTIONS["notes"](page)))
    links = tuple(SECTIONS["downloads"](page))
    if links:
        yield Fold(web("downloads", page.lang), links)
    ids = [recorded.run.id for recorded in page.runs]
    command = f"flagperf runs verify {ids[0] if len(ids) == 1 else 'RUN'}"
    yield Paragraph(web("recompute", page.lang, command=command))
