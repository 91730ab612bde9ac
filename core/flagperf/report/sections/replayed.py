"""The operators of a recorded run, as they were measured here: which of them make up a step, and what tuning could
gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.api import Recording
from flagperf.messages import message
from flagperf.metrics import MeasuredRow
from flagperf.metrics.replayed import StepBreakdown, StepShare, step_breakdown
from flagperf.report.document import Block, Empty, Head, Paragraph, Table, TableCell, Text, Value
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.row_groups import rate_text, time_text
from flagperf.report.texts import Lang, clauses, label, say
from flagperf.spec import Job
from flagperf.store.run import Run

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
        yield _table("replayed_operators", found.operators, lang)
        yield _table("replayed_calls", found.calls[:SHOWN_CALLS], lang)
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


def _table(title: str, shares: Sequence[StepShare], lang: Lang) -> Table:
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
    lines = tuple(tuple(_cells(share, is_of_calls, has_roofline)) for share in shares)
    return Table(heads, lines, label(title, lang))


def _cells(share: StepShare, with_rate: bool, with_roofline: bool) -> Iterator[TableCell]:
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
