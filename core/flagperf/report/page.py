"""The Markdown page of a case on one vendor's cards, generated whole from the runs' bundles."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.report.cells import Cell
from flagperf.report.checks import check_figures
from flagperf.report.columns import columns
from flagperf.report.environment import environment
from flagperf.report.inference import inference_sections
from flagperf.report.markdown import Notes, bold, cell, escape, table
from flagperf.report.page_runs import PageRuns, page_runs
from flagperf.report.parts import batch_sizes, strategies
from flagperf.report.references import reference_table
from flagperf.report.rows import check_layout, row_remark, row_title, row_value, rows
from flagperf.report.run_notes import run_notes
from flagperf.report.table import Table
from flagperf.report.texts import Lang, label, listed, say
from flagperf.report.words import vendor_and_device, vendor_title
from flagperf.store.run import RecordedRun


def page(runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False) -> str:
    """Raises BadInput where the runs do not belong on one page, a figure contradicts another, or the case's page
    names what does not exist."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated)
    check_layout(content.manifest)
    check_figures(content.runs)
    notes = Notes()
    blocks = [*_setting(content, notes), *_results(content, notes)]
    for text in run_notes(content):
        notes.number(text)
    return "\n\n".join([*blocks, *notes.blocks(lang)]) + "\n"


def _setting(content: PageRuns, notes: Notes) -> list[str]:
    """All that stands above the results."""
    if content.manifest.kind == "inference":
        return inference_sections(content, _subject(content), notes)
    return [
        *_downloads(content),
        "### " + escape(say("heading", content.lang, subject=_subject(content))),
        "#### " + label("environment", content.lang),
        *environment(content, notes),
        *strategies(content),
    ]


def _downloads(content: PageRuns) -> list[str]:
    page = content.manifest.page
    return [
        f"### {label(f'download_{name}', content.lang)}\n\n"
        + "\n".join(f"- {escape(link)}" for link in page.links(name))
        for name in page.downloads
    ]


def _subject(content: PageRuns) -> str:
    names = [
        vendor_and_device(vendor_title(recorded.run, content.lang), recorded.run.job.device_model.short_name)
        for recorded in content.runs
    ]
    return listed(list(dict.fromkeys(names)), content.lang)


def _results(content: PageRuns, notes: Notes) -> list[str]:
    lang, kind = content.lang, content.manifest.kind
    blocks = [
        "### " + label("results", lang, kind),
        *batch_sizes(content),
        "* " + label("general", lang, kind),
        table(_general(content)),
        "* " + label("performance", lang, kind),
        table(_performance(content, notes)),
    ]
    if content.manifest.references:
        blocks += ["* " + label("published", lang, kind), table(_published(content, notes))]
    return blocks


def _general(content: PageRuns) -> Table:
    head = tuple(
        label(name, content.lang, content.manifest.kind) for name in ("head_name", "head_value", "head_remark")
    )
    lines = []
    for row in rows(content.manifest):
        name, value = escape(row_title(row, content)), escape(row_value(row, content))
        if row.headline:
            name, value = bold(name), bold(value)
        lines.append((name, value, escape(row_remark(row, content))))
    return Table(head, tuple(lines))


def _performance(content: PageRuns, notes: Notes) -> Table:
    shown = columns(content.manifest)
    head = tuple(escape(column.title(content.lang)) for column in shown)
    lines = tuple(
        tuple(cell(column.of_run(recorded.run, content.lang), notes, content.lang) for column in shown)
        for recorded in content.runs
    )
    return Table(head, lines)


def _published(content: PageRuns, notes: Notes) -> Table:
    def show(content_cell: Cell) -> str:
        return cell(content_cell, notes, content.lang)

    return reference_table(content.manifest.references, columns(content.manifest), content.lang, show)
