"""Operators: what costs most first, with the alternatives of each beside it, folded by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from flagperf import units
from flagperf.metrics import MeasuredRow
from flagperf.metrics.autocorrelation import MIN_BATCHES
from flagperf.metrics.speedup import holm
from flagperf.report.document import Block, Head, Table, TableCell, Text
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.published import link_to
from flagperf.report.sections.published_rows import PublishedOf, PublishedRow
from flagperf.report.sections.row_charts import row_charts
from flagperf.report.sections.row_groups import (
    RowGroup,
    interval_cell,
    label_heads,
    label_names,
    missing_lines,
    rate_cell,
    row_groups,
    share_cell,
    time_cell,
    time_text,
)
from flagperf.report.texts import Lang, label, say
from flagperf.robust import median
from flagperf.store.run import Run

MARGIN = 0.01
"""A difference below 1 % is none."""

SIGNIFICANT = 0.05
TOP = 10
"""So many operators are listed before they are folded by group."""

Verdict = Literal["faster", "slower", "same", "undecided"]

GROUP = "group"
"""The label that operators are folded by."""


class Judged(msgspec.Struct, frozen=True):
    """A line of the table, with the verdict of its alternatives over the whole table."""

    group: RowGroup
    verdict: Verdict | None = None
    published: PublishedRow | None = None


def operators(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from operator_blocks(recorded.run, page.lang, page.mark(number))
        yield from row_charts(recorded.run, page.lang)


def operator_blocks(run: Run, lang: Lang, mark: str = "") -> Iterator[Block]:
    """What was replayed has tables of its own."""
    if run.job.recording is not None:
        return
    published = PublishedOf(run)
    lines = [
        msgspec.structs.replace(line, published=published.of(line.group.rows[0]))
        for line in _judged([group for group in row_groups(run.rows) if "operator" in group.labels])
    ]
    if not lines:
        return
    lines.sort(key=lambda line: -(line.group.middle.median or 0.0) if line.group.middle else 0.0)
    yield _summary(lines, _title("operator_groups", lang, mark), lang)
    yield _table(lines[:TOP], _title("operators_top", lang, mark), lang)
    by_group: dict[str, list[Judged]] = {}
    for line in lines:
        by_group.setdefault(line.group.labels.get(GROUP, ""), []).append(line)
    if len(lines) > TOP:
        for name, of_group in by_group.items():
            yield _table(of_group, f"{name} {mark}".strip(), lang, folded=True)
    yield from missing_lines([line.group for line in lines], lang)


def _title(name: str, lang: Lang, mark: str) -> str:
    return say("line", lang, label=label(name, lang), value=mark) if mark else label(name, lang)


# --- verdicts -------------------------------------------------------------------------------------------------------


def _judged(groups: Sequence[RowGroup]) -> list[Judged]:
    """Many rows in one table are many tests, so their probabilities are corrected together."""
    compared = [group for group in groups if (row := group.middle) and row.speedup and row.speedup.p is not None]
    corrected = holm([group.middle.speedup.p or 0.0 for group in compared if group.middle and group.middle.speedup])
    verdicts = {id(group): _verdict(group.middle, p) for group, p in zip(compared, corrected, strict=True)}
    return [Judged(group, verdicts.get(id(group))) for group in groups]


def _verdict(row: MeasuredRow | None, corrected_p: float) -> Verdict | None:
    if row is None or row.speedup is None or row.speedup.low is None or row.speedup.high is None:
        return None
    low, high = row.speedup.low, row.speedup.high
    if corrected_p < SIGNIFICANT and low > 1 + MARGIN:
        return "faster"
    if corrected_p < SIGNIFICANT and high < 1 - MARGIN:
        return "slower"
    return "same" if low >= 1 - MARGIN and high <= 1 + MARGIN else "undecided"


# --- tables ---------------------------------------------------------------------------------------------------------


def _summary(lines: Sequence[Judged], title: str, lang: Lang) -> Table:
    """One line for each group of operators and each alternative."""
    found: dict[tuple[str, str], list[Judged]] = {}
    for line in lines:
        labels = line.group.labels
        found.setdefault((labels.get(GROUP, ""), labels.get("library", "")), []).append(line)
    heads = ("group", "library", "rows", "statuses", "median_share", "median_speedup", "verdicts")
    rows = tuple(_summary_cells(name, library, of_both, lang) for (name, library), of_both in found.items())
    return Table(tuple(Head(label(f"head_{head}", lang)) for head in heads), rows, title)


def _summary_cells(name: str, library: str, lines: Sequence[Judged], lang: Lang) -> tuple[TableCell, ...]:
    measured = [line.group.middle for line in lines if line.group.middle]
    shares = [row.share for row in measured if row.share is not None]
    ratios = [row.speedup.ratio for row in measured if row.speedup]
    statuses = Counter(line.group.rows[0].status for line in lines if line.group.middle is None)
    compared = [line for line in lines if line.group.middle and line.group.middle.speedup]
    verdicts = Counter(line.verdict or "none" for line in compared)
    return (
        Text(name),
        Text(library),
        Text(f"{len(measured)}/{len(lines)}"),
        Text(", ".join(f"{count} {status}" for status, count in statuses.items())),
        Text(units.percent(median(shares)) if shares else ""),
        Text(units.four_digits(median(ratios)) if ratios else ""),
        Text(", ".join(f"{count} {label(f'verdict_{word}', lang)}" for word, count in verdicts.items())),
    )


def _table(lines: Sequence[Judged], title: str, lang: Lang, *, folded: bool = False) -> Table:
    names = [name for name in label_names([line.group for line in lines]) if name != GROUP]
    names = names if "operator" in names else ["operator", *names]
    has_speedups = any(line.group.middle and line.group.middle.speedup for line in lines)
    has_issue = any(line.group.middle and line.group.middle.issue is not None for line in lines)
    figures = ["median", "interval", *(["issue"] if has_issue else []), "rate", "share"]
    figures += ["speedup", "verdict"] if has_speedups else []
    has_published = any(line.published for line in lines)
    figures += ["published"] if has_published else []
    heads = (*label_heads(names, lang), *(Head(label(f"head_{name}", lang)) for name in figures))
    rows = tuple(
        (*_cells(line, names, has_issue, has_speedups, lang), *((_published_cell(line),) if has_published else ()))
        for line in lines
    )
    return Table(heads, rows, title, collapsed=folded)


def _cells(line: Judged, names: Sequence[str], has_issue: bool, has_speedups: bool, lang: Lang) -> Iterator[TableCell]:
    group, row = line.group, line.group.middle
    yield from (Text(group.labels.get(name, "")) for name in names)
    yield time_cell(group)
    yield interval_cell(group)
    if has_issue:
        yield Text(f"{units.four_digits(row.issue * 1e6)} us" if row and row.issue is not None else "")
    yield rate_cell(group)
    yield share_cell(group)
    if has_speedups:
        yield Text(_speedup_text(row))
        yield Text(_verdict_text(line, lang))


def _published_cell(line: Judged) -> TableCell:
    """The time, on which card, as a link to where it was published."""
    found = line.published
    return link_to(found.source, f"{time_text(found.value)} ({found.device})") if found else Text("")


def _verdict_text(line: Judged, lang: Lang) -> str:
    """Or why there is none."""
    if line.verdict:
        return label(f"verdict_{line.verdict}", lang)
    found = line.group.middle.speedup if line.group.middle else None
    if found is None:
        return ""
    if found.blocks < MIN_BATCHES:
        return say("speedup_few_blocks", lang, blocks=found.blocks, needed=MIN_BATCHES)
    return say("speedup_drift", lang)


def _speedup_text(row: MeasuredRow | None) -> str:
    if row is None or row.speedup is None:
        return ""
    found = row.speedup
    if found.low is None or found.high is None:
        return f"{units.four_digits(found.ratio)}x"
    return f"{units.four_digits(found.ratio)}x ({units.four_digits(found.low)} - {units.four_digits(found.high)})"
