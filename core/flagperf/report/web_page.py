"""The page with charts (`report --format html`): what a person looks at first comes first, and detail is folded. It has
the sections of the published page, in another order, and charts over time from the raw files of the runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from flagperf.commands import pip_command
from flagperf.errors import MissingPart
from flagperf.kinds import KINDS
from flagperf.metrics import LossCurve
from flagperf.metrics.course import RunCourse
from flagperf.report.document import Bars, Block, Chart, Document, Fold, Heading, HeatMap, Paragraph, Table
from flagperf.report.page import SECTIONS, Section, refuse_contradictions
from flagperf.report.render.html import to_html as render_html
from flagperf.report.sections.caveats import caveats
from flagperf.report.sections.course_charts import course_charts
from flagperf.report.sections.device_charts import device_charts
from flagperf.report.sections.headline import headlines, page_title
from flagperf.report.sections.naming import run_configuration
from flagperf.report.sections.page_runs import PageRuns, page_runs
from flagperf.report.sections.row_charts import row_charts
from flagperf.report.sections.rows import check_layout
from flagperf.report.sections.settings import settings
from flagperf.report.sections.spread import whole_spread
from flagperf.report.sections.spread_charts import spread_charts
from flagperf.report.sections.step_charts import step_histogram, time_shares
from flagperf.report.texts import Lang, web
from flagperf.store.run import RecordedRun

MAX_CHARTED = 8
"""So many runs of a page have charts of their own."""

RunSection = Callable[[PageRuns, RecordedRun], Iterator[Block]]


def _row_charts(page: PageRuns, recorded: RecordedRun) -> Iterator[Block]:
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
    published: bool = True,
) -> Document:
    """`courses` by run id. Raises BadInput as page_document does."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated)
    check_layout(content.manifest)
    refuse_contradictions(content.runs)
    content = msgspec.structs.replace(content, courses=courses, reference=reference)
    blocks = [
        *headlines(content),
        *_titled("course" if KINDS[content.manifest.kind].has_steps else "charts", content, _charts),
        *_titled("results", content, *_sections(content, "performance", "figures")),
        *_titled("rows", content, _row_tables),
        *_titled("devices", content, *_spread(content)),
        *(_titled("published", content, _published) if published else ()),
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


def _titled(name: str, page: PageRuns, *sections: Section) -> Iterator[Block]:
    """Nothing without content."""
    blocks = [block for section in sections for block in section(page)]
    if blocks:
        yield Heading(web(name, page.lang), level=2)
        yield from blocks


def _charts(page: PageRuns) -> Iterator[Block]:
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
    """Their charts are among the other charts."""
    for section in _sections(page, "rows", "operator_rows", "replayed"):
        yield from (block for block in section(page) if not isinstance(block, Chart | HeatMap | Bars))


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
