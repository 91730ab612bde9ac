"""Tables of operators with their alternatives, and of the recorded operators that a run replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, clauses, label, message, say
from flagperf.metrics.row_figures import StepShare, step_breakdown
from flagperf.metrics.rows import holm
from flagperf.report.document import Block, Empty, Head, Paragraph, Table, TableCell, Text, Value
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.published_tables import PublishedOf, PublishedRow, link_to
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
from flagperf.report.wording import is_beside_published
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
    """Show the operators of a run, unless it replayed them: those have tables of their own."""
    groups = [group for group in row_groups(run.rows) if "operator" in group.labels]
    if run.job.recording is not None or not groups:
        return
    groups.sort(key=lambda group: -(group.middle.median or 0.0) if group.middle else 0.0)
    lines = _judged(groups, PublishedOf(run) if is_beside_published(run, published) else None)
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


def _judged(groups: Sequence[RowGroup], published: PublishedOf | None) -> list[Judged]:
    """Compare operators with their alternatives, and find what was `published` of them. Many rows in one table are many
    tests, so their probabilities are corrected together."""
    speedups = [group.middle.speedup if group.middle else None for group in groups]
    tested = [speedup.p for speedup in speedups if speedup and speedup.p is not None]
    corrected = iter(holm(tested))
    lines = []
    for group, speedup in zip(groups, speedups, strict=True):
        verdict: Verdict | None = None
        if speedup and speedup.p is not None:
            is_significant = next(corrected) < SIGNIFICANT
            low, high = speedup.low, speedup.high
            if low is not None and high is not None:
                is_same = low >= 1 - MARGIN and high <= 1 + MARGIN
                verdict = "same" if is_same else "undecided"
                if is_significant and low > 1 + MARGIN:
                    verdict = "faster"
                elif is_significant and high < 1 - MARGIN:
                    verdict = "slower"
        lines.append(Judged(group, verdict, published.of(group.rows[0]) if published else None))
    return lines


# --- tables ---------------------------------------------------------------------------------------------------------


def _summary(lines: Sequence[Judged], title: str, lang: Lang) -> Table:
    """Return a table with one row for each group of operators and each alternative."""
    found: dict[tuple[str, str], list[Judged]] = {}
    for line in lines:
        labels = line.group.labels
        found.setdefault((labels.get(GROUP, ""), labels.get("library", "")), []).append(line)
    rows = []
    for (name, library), of_both in found.items():
        measured = [line.group.middle for line in of_both if line.group.middle]
        shares = [row.share for row in measured if row.share is not None]
        ratios = [row.speedup.ratio for row in measured if row.speedup]
        statuses = Counter(line.group.rows[0].status for line in of_both if line.group.middle is None)
        compared = [line for line in of_both if line.group.middle and line.group.middle.speedup]
        verdicts = Counter(label(f"verdict_{line.verdict or 'none'}", lang) for line in compared)
        texts = (
            name,
            library,
            f"{len(measured)}/{len(of_both)}",
            ", ".join(f"{count} {status}" for status, count in statuses.items()),
            units.percent(median(shares)) if shares else "",
            units.four_digits(median(ratios)) if ratios else "",
            ", ".join(f"{count} {word}" for word, count in verdicts.items()),
        )
        rows.append(tuple(map(Text, texts)))
    heads = ("group", "library", "rows", "statuses", "median_share", "median_speedup", "verdicts")
    return Table(tuple(Head(label(f"head_{head}", lang)) for head in heads), tuple(rows), title)


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
    rows = []
    for line in lines:
        group, row, found = line.group, line.group.middle, line.published
        cells: list[TableCell] = [Text(group.labels.get(name, "")) for name in names]
        cells += [time_cell(group), interval_cell(group)]
        if has_issue:
            cells.append(Text(f"{units.four_digits(row.issue * 1e6)} us" if row and row.issue is not None else ""))
        cells += [rate_cell(group), share_cell(group)]
        if has_speedups:
            speedup, text, verdict = row.speedup if row else None, "", ""
            if speedup:
                text = f"{units.four_digits(speedup.ratio)}x"
                verdict = say("speedup_drift", lang)
                if speedup.low is not None and speedup.high is not None:
                    text += f" ({units.four_digits(speedup.low)} - {units.four_digits(speedup.high)})"
                if line.verdict:
                    verdict = label(f"verdict_{line.verdict}", lang)
                elif speedup.blocks < MIN_BATCHES:
                    verdict = say("speedup_few_blocks", lang, blocks=speedup.blocks, needed=MIN_BATCHES)
            cells += [Text(text), Text(verdict)]
        if has_published:
            cells.append(link_to(found.source, f"{time_text(found.value)} ({found.device})") if found else Text(""))
        rows.append(tuple(cells))
    return Table(heads, tuple(rows), title, collapsed=folded)


# The operators of a recorded run, as they were measured here: which of them make up a step, and what tuning could
# gain.

SHOWN_CALLS = 20
"""The calls that cost most. The bundle has all of them."""


def replayed(page: PageRuns) -> Iterator[Block]:
    for recorded in page.runs:
        yield from replayed_blocks(recorded.run, page.lang)


def replayed_blocks(run: Run, lang: Lang) -> Iterator[Block]:
    """Show the recorded operators that a run replayed, if any."""
    recording = run.job.recording
    if recording is None:
        return
    (part,) = recording.parts
    origin = {"run": recording.run_id, "case": recording.case, "profile": recording.profile, "torch": recording.torch}
    device = f"{recording.vendor} {recording.device}"
    recorded = {"steps": part.steps, "rank": part.ranks[0], "ranks": recording.num_ranks}
    yield Paragraph(say("replayed_from", lang, precision=recording.precision, device=device, **origin, **recorded))
    rows = [row for row in run.rows if row.rank == 0]
    found = step_breakdown([row for row in rows if "arguments" in row.labels])
    if found.calls:
        calls = units.count(sum(call.per_step for call in found.calls))
        sums = [say("replayed_sum", lang, calls=calls, time=time_text(found.seconds))]
        if step := recording.step_seconds:
            # A share of it only on the same card: else it would compare two cards.
            is_same = (run.job.vendor, run.job.device_model.model) == (recording.vendor, recording.device)
            share = {"share": units.percent(found.seconds / step)} if is_same else {}
            name = "replayed_step" if is_same else "replayed_step_elsewhere"
            sums.append(say(name, lang, time=time_text(step), **share))
        best = found.roofline_seconds
        sums.append(say("no_roofline", lang) if best is None else say("replayed_roofline", lang, time=time_text(best)))
        yield Paragraph(clauses(sums, lang))
        yield _replayed_table("replayed_operators", found.operators, lang)
        yield _replayed_table("replayed_calls", found.calls[:SHOWN_CALLS], lang)
    not_timed = [*found.failed, *(row for row in rows if "arguments" not in row.labels)]
    if not_timed:
        heads = tuple(Head(label(f"head_{name}", lang)) for name in ("operator", "arguments", "per_step", "status"))
        lines = []
        for row in not_timed:
            status = row.problem if row.status in ("ok", "error") else f"{row.status}: {row.problem}"
            labels = (row.labels.get(name, "") for name in ("operator", "arguments", "per_step"))
            lines.append((*map(Text, labels), Text(status)))
        yield Table(heads, tuple(lines), label("replayed_others", lang), collapsed=True)


def _replayed_table(title: str, shares: Sequence[StepShare], lang: Lang) -> Table:
    """Return a table of operators or calls. It has columns of the roofline only where a peak is known."""
    is_of_calls = any(share.arguments for share in shares)
    has_roofline = any(share.roofline_seconds is not None for share in shares)
    second = "arguments" if is_of_calls else "different"
    names = ["operator", second, "per_step", "call_time", "step_time", "step_share"]
    names += ["rate"] if is_of_calls else []
    names += ["roofline", "at_roofline"] if has_roofline else []
    heads = tuple(Head(label(f"head_{name}", lang), name == "step_share") for name in names)
    lines = []
    for share in shares:
        marks = dict.fromkeys(mark for row in share.rows for mark in row.marks)
        cells: list[TableCell] = [
            Text(share.operator),
            Text(share.arguments if is_of_calls else units.count(share.num_different)),
            Text(f"{share.per_step:.6g}"),
            Value(time_text(share.seconds / share.per_step), marks=tuple(marks)),
            Value(time_text(share.seconds)),
            Value(units.percent(share.share)),
        ]
        cells += [Text(rate_text(share.rows[0]))] if is_of_calls else []
        if has_roofline and share.roofline_seconds is None:
            cells += [Empty("unknown_peak"), Empty("unknown_peak")]
        elif has_roofline and share.roofline_seconds is not None:
            in_cache = Empty("not_applicable", message("figure.in_cache"))
            cells.append(in_cache if share.roofline_share is None else Value(units.percent(share.roofline_share)))
            cells.append(Value(time_text(share.roofline_seconds)))
        lines.append(tuple(cells))
    return Table(heads, tuple(lines), label(title, lang))
