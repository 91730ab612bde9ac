"""Marks and missing values of runs, each with what it means and what was observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf.messages import usable, words
from flagperf.metrics import Metric
from flagperf.metrics.registry import entries_of
from flagperf.report.document import Block, Head, Heading, Table, TableCell, Text
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, choose, clauses, listed, meaning, web
from flagperf.store.run import Run

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
