"""Operators, alternatives, replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from flagperf import units
from flagperf.api import Recording
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, clauses, label, message, say
from flagperf.metrics.row_figures import StepBreakdown, StepShare, step_breakdown
from flagperf.metrics.rows import MeasuredRow, holm
from flagperf.report.document import Block, Empty, Head, Paragraph, Table, TableCell, Text, Value
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.published_tables import PublishedOf, PublishedRow, is_compared, link_to
from flagperf.report.sections.row_tables import (
    RowGroup,
    interval_cell,
    label_heads,
    label_names,
    missing_lines,
    rate_cell,
    rate_text,
    row_groups,
    share_cell,
    time_cell,
    time_text,
)
from flagperf.spec.job import Job
from flagperf.stats import MIN_BATCHES, median

# Operators: what costs most first, with the alternatives of each beside it, folded by group.


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
        yield from operator_blocks(recorded.run, page.lang, page.mark(number), published=page.published)


def operator_blocks(run: Run, lang: Lang, mark: str = "", *, published: bool | None = None) -> Iterator[Block]:
    """What was replayed has tables of its own."""
    if run.job.recording is not None:
        return
    lines = _judged([group for group in row_groups(run.rows) if "operator" in group.labels])
    if is_compared(run, published):
        found = PublishedOf(run)
        lines = [msgspec.structs.replace(line, published=found.of(line.group.rows[0])) for line in lines]
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


# The operators of a recorded run, as they were measured here: which of them make up a step, and what tuning could
# gain.


SHOWN_CALLS = 20
"""The calls that cost most. The bundle has all of them."""


def replayed(page: PageRuns) -> Iterator[Block]:
    for recorded in page.runs:
        yield from replayed_blocks(recorded.run, page.lang)


def replayed_blocks(run: Run, lang: Lang) -> Iterator[Block]:
    """Nothing for a run that replays nothing."""
    recording = run.job.recording
    if recording is None:
        return
    rows = [row for row in run.rows if row.rank == 0]
    found = step_breakdown([row for row in rows if "arguments" in row.labels])
    yield Paragraph(_origin(recording, lang))
    if found.calls:
        yield Paragraph(_sums(found, run.job, recording, lang))
        yield _replayed_table("replayed_operators", found.operators, lang)
        yield _replayed_table("replayed_calls", found.calls[:SHOWN_CALLS], lang)
    yield from _others([*found.failed, *(row for row in rows if "arguments" not in row.labels)], lang)


def _origin(recording: Recording, lang: Lang) -> str:
    (part,) = recording.parts
    return say(
        "replayed_from",
        lang,
        run=recording.run_id,
        case=recording.case,
        profile=recording.profile,
        precision=recording.precision,
        device=f"{recording.vendor} {recording.device}",
        torch=recording.torch,
        steps=part.steps,
        rank=part.ranks[0],
        ranks=recording.num_ranks,
    )


def _sums(found: StepBreakdown, job: Job, recording: Recording, lang: Lang) -> str:
    """Of the recorded step, a share only on the same card: else it compares two cards."""
    calls = units.count(sum(call.per_step for call in found.calls))
    total = say("replayed_sum", lang, calls=calls, time=time_text(found.seconds))
    explained = ""
    if step := recording.step_seconds:
        is_same = (job.vendor, job.device_model.model) == (recording.vendor, recording.device)
        share = units.percent(found.seconds / step)
        name = "replayed_step" if is_same else "replayed_step_elsewhere"
        explained = say(name, lang, time=time_text(step), **({"share": share} if is_same else {}))
    best = found.roofline_seconds
    at_peaks = say("replayed_roofline", lang, time=time_text(best)) if best is not None else say("no_roofline", lang)
    return clauses([total, explained, at_peaks], lang)


def _replayed_table(title: str, shares: Sequence[StepShare], lang: Lang) -> Table:
    """Without the columns of the roofline where no peak is known."""
    is_of_calls = any(share.arguments for share in shares)
    has_roofline = any(share.roofline_seconds is not None for share in shares)
    names = [
        "operator",
        "arguments" if is_of_calls else "different",
        "per_step",
        "call_time",
        "step_time",
        "step_share",
    ]
    names += ["rate"] if is_of_calls else []
    names += ["roofline", "at_roofline"] if has_roofline else []
    heads = tuple(Head(label(f"head_{name}", lang), name == "step_share") for name in names)
    lines = tuple(tuple(_replayed_cells(share, is_of_calls, has_roofline)) for share in shares)
    return Table(heads, lines, label(title, lang))


def _replayed_cells(share: StepShare, with_rate: bool, with_roofline: bool) -> Iterator[TableCell]:
    yield Text(share.operator)
    yield Text(share.arguments if with_rate else units.count(share.num_different))
    yield Text(f"{share.per_step:.6g}")
    marks = dict.fromkeys(mark for row in share.rows for mark in row.marks)
    yield Value(time_text(share.seconds / share.per_step), marks=tuple(marks))
    yield Value(time_text(share.seconds))
    yield Value(units.percent(share.share))
    if with_rate:
        yield Text(rate_text(share.rows[0]))
    if with_roofline:
        yield from _roofline_cells(share)


def _roofline_cells(share: StepShare) -> Iterator[TableCell]:
    if share.roofline_seconds is None:
        yield from (Empty("unknown_peak"), Empty("unknown_peak"))
        return
    in_cache = Empty("not_applicable", message("figure.in_cache"))
    yield in_cache if share.roofline_share is None else Value(units.percent(share.roofline_share))
    yield Value(time_text(share.roofline_seconds))


def _others(rows: Sequence[MeasuredRow], lang: Lang) -> Iterator[Block]:
    """Calls that were not timed, or could not be."""
    if not rows:
        return
    heads = tuple(Head(label(f"head_{name}", lang)) for name in ("operator", "arguments", "per_step", "status"))
    lines = tuple(
        (
            Text(row.labels.get("operator", "")),
            Text(row.labels.get("arguments", "")),
            Text(row.labels.get("per_step", "")),
            Text(row.problem if row.status in ("ok", "error") else f"{row.status}: {row.problem}"),
        )
        for row in rows
    )
    yield Table(heads, lines, label("replayed_others", lang), collapsed=True)
