"""The published page of a case on one vendor's cards, built entirely from the bundles of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.plausibility.doubts import refusals
from flagperf.report.document import Block, Document
from flagperf.report.render import to_markdown
from flagperf.report.sections.environment import environment
from flagperf.report.sections.figures import figures
from flagperf.report.sections.measured import measured
from flagperf.report.sections.notes import notes
from flagperf.report.sections.operators import operators
from flagperf.report.sections.page_runs import PageRuns, page_runs
from flagperf.report.sections.published import published
from flagperf.report.sections.replayed import replayed
from flagperf.report.sections.rows import check_layout
from flagperf.report.sections.spread import spread
from flagperf.report.sections.strategies import batch_sizes, strategies
from flagperf.report.sections.subject import engine, machine, results, subject
from flagperf.report.sections.tables import general, performance
from flagperf.report.sections.telemetry import telemetry
from flagperf.report.sections.weights import dataset, downloads, weights
from flagperf.report.texts import Lang
from flagperf.store.run import RecordedRun

Section = Callable[[PageRuns], Iterator[Block]]

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


def page(runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False, published: bool = True) -> str:
    """The page as Markdown."""
    return to_markdown(page_document(runs, lang, allow_simulated=allow_simulated, published=published))


def page_document(
    runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool = False, published: bool = True
) -> Document:
    """Raises BadInput if the runs do not belong on one page, figures contradict each other, or the case's page layout
    uses an unknown name."""
    content = page_runs(runs, lang, allow_simulated=allow_simulated)
    check_layout(content.manifest)
    refuse_contradictions(content.runs)
    names = [name for name in KINDS[content.manifest.kind].sections if published or name != "published"]
    return Document(lang, tuple(block for name in names for block in SECTIONS[name](content)))


def refuse_contradictions(runs: Sequence[RecordedRun]) -> None:
    """Raise one BadInput that lists every broken rule with its run and figures."""
    broken = [f"run {recorded.run.id}: {seen.message}" for recorded in runs for seen in refusals(recorded)]
    if broken:
        raise BadInput(f"no page was written because figures contradict each other: {'; '.join(broken)}")
