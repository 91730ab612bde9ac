"""The pages of runs: one list of sections, each on the Markdown page, on the HTML page or on both.

The Markdown page is the published page of a case on one vendor's cards. The HTML page shows first what a person looks
at first, folds details, and adds charts over time from the raw files of the runs.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

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

Blocks = Callable[[PageRuns], Iterator[Block]]

MAX_CHARTED = 8
"""So many runs of a page have charts of their own."""

OPEN_ROWS = 12
"""A table of so many published results is shown open."""


def charts(page: ChartedRuns) -> Iterator[Block]:
    """Yield the charts that runs share, then those of each run, folded where there are several."""
    yield from time_shares(page)
    yield from course_charts(page)
    for number, recorded in enumerate(page.runs[:MAX_CHARTED], start=1):
        own = [*step_histogram(page, recorded), *device_charts(page, recorded), *spread_charts(page, recorded)]
        if recorded.run.rows:
            from flagperf_publish.pages.row_charts import row_charts  # lazy: most runs have none

            own = [*row_charts(recorded.run, page.lang), *own]
        if len(page.runs) == 1:
            yield from own
        elif own:
            configuration = run_configuration(recorded.run, page.lang)
            yield Fold(web("of_row", page.lang, row=number, configuration=configuration), tuple(own))
    if len(page.runs) > MAX_CHARTED:
        yield Paragraph(web("fewer_charts", page.lang, row=MAX_CHARTED))


def published_open(page: PageRuns) -> Iterator[Block]:
    """Show short tables open and without a title: the heading says what they are."""
    for block in published(page):
        is_short = isinstance(block, Table) and len(block.rows) <= OPEN_ROWS
        yield msgspec.structs.replace(block, title="", collapsed=False) if is_short else block


def folded(name: str, blocks: Blocks) -> Blocks:
    def fold(page: PageRuns) -> Iterator[Block]:
        inside = tuple(blocks(page))
        if inside:
            yield Fold(web(name, page.lang) if name == "downloads" else page.label(name), inside)

    return fold


def recompute(page: PageRuns) -> Iterator[Block]:
    ids = [recorded.run.id for recorded in page.runs]
    command = f"flagperf runs verify {ids[0] if len(ids) == 1 else 'RUN'}"
    yield Paragraph(web("recompute", page.lang, command=command))


class PageSection(msgspec.Struct, frozen=True):
    name: str
    """A name of Kind.sections, which order the Markdown page. Any other is a section of the HTML page alone."""
    markdown: Blocks | None = None
    html: Callable[[ChartedRuns], Iterator[Block]] | None = None
    heading: str = ""
    """The heading on the HTML page. Sections that follow each other share it, and it is left out if they are empty."""


SECTIONS = (
    PageSection("headlines", None, headlines),
    PageSection("charts", None, charts, "course"),
    PageSection("performance", performance, performance, "results"),
    PageSection("figures", figures, figures, "results"),
    PageSection("rows", measured, measured, "rows"),
    PageSection("operator_rows", operators, operators, "rows"),
    PageSection("replayed", replayed, replayed, "rows"),
    PageSection("spread", spread, whole_spread, "devices"),
    PageSection("published", published, published_open, "published"),
    PageSection("caveats", None, caveats),
    PageSection("settings", None, settings, "configuration"),
    PageSection("strategies", strategies, strategies, "configuration"),
    PageSection("engine", engine, engine, "configuration"),
    PageSection("batch_sizes", batch_sizes, batch_sizes, "configuration"),
    PageSection("environment", environment, environment, "environment"),
    PageSection("general", general, folded("general", general), "details"),
    PageSection("notes", notes, folded("notes", notes), "details"),
    PageSection("links", None, folded("downloads", downloads), "details"),
    PageSection("recompute", None, recompute, "details"),
    PageSection("downloads", downloads),
    PageSection("subject", subject),
    PageSection("dataset", dataset),
    PageSection("weights", weights),
    PageSection("machine", machine),
    PageSection("results", results),
    PageSection("telemetry", telemetry),
)
"""All sections, in the order of the HTML page."""


def page(
    runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False, published: bool | None = None
) -> str:
    """Return the published page as Markdown.

    Raise BadInput if the runs do not belong on one page, if figures contradict each other, or if the case's page layout
    uses an unknown name.
    """
    from flagperf_publish.render.markdown import to_markdown  # lazy: the page in HTML needs none of it

    content = _checked(runs, lang, allow_simulated, published)
    blocks = {section.name: section.markdown for section in SECTIONS if section.markdown}
    names = KINDS[content.manifest.kind].sections
    return to_markdown(Document(lang, tuple(block for name in names for block in blocks[name](content))))


def web_document(
    runs: Sequence[RecordedRun],
    lang: Lang,
    *,
    courses: Mapping[str, RunCourse],
    reference: LossCurve | None = None,
    allow_simulated: bool = False,
    published: bool | None = None,
) -> Document:
    """Return the page with charts. `courses` are by run id. Raise BadInput as `page` does."""
    checked = _checked(runs, lang, allow_simulated, published)
    content = ChartedRuns(checked.runs, checked.manifest, lang, reference, published, courses)
    kind = KINDS[content.manifest.kind]
    blocks: list[Block] = []
    for heading, sections in itertools.groupby(SECTIONS, key=lambda section: section.heading):
        found = [
            block
            for section in sections
            if section.html and (section.markdown is None or section.name in kind.sections)
            for block in section.html(content)
        ]
        if found and heading:
            name = "charts" if heading == "course" and not kind.has_steps else heading
            blocks.append(Heading(web(name, lang), level=2))
        blocks += found
    return Document(lang, tuple(blocks), page_title(content))


def _checked(runs: Sequence[RecordedRun], lang: Lang, allow_simulated: bool, published: bool | None) -> PageRuns:
    """Raise BadInput for runs without a page. One error lists every contradiction with its run and figures."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated, published=published)
    check_layout(content.manifest)
    broken = [f"run {recorded.run.id}: {seen.message}" for recorded in content.runs for seen in refusals(recorded)]
    if broken:
        raise BadInput(f"no page was written because figures contradict each other: {'; '.join(broken)}")
    return content


def to_html(document: Document) -> str:
    """Return one file that needs nothing else. Raise MissingPart if it has charts that nothing here can draw."""
    try:
        return render_html(document)
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        raise _cannot_draw() from None


def check_charts() -> None:
    """Raise MissingPart if vl-convert, which draws charts, is not installed."""
    if importlib.util.find_spec("vl_convert") is None:
        raise _cannot_draw()


def _cannot_draw() -> MissingPart:
    command = pip_command("install", "flagperf[html]")
    return MissingPart(f"a page with charts needs vl-convert-python, which draws them: `{command}`")
