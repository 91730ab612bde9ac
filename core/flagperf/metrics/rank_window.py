"""RankWindow: the durations and counts of one rank after warm-up, made while its file is read. A record whose durations
do not nest is rejected."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import msgspec

from flagperf.events import WORK, SpanEnded, StepFinished
from flagperf.messages import message
from flagperf.metrics.columns import integers
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.span import Span

DRIFT = 1e-3
"""Maximum relative drift between the clocks of device and host. Crystals drift by about 20 ppm, so a larger difference
is not drift."""

ROUNDING_NS = 1000
"""Tolerance for the resolution of device timing events, which is below a microsecond."""


class RankWindow(msgspec.Struct, frozen=True):
    """`core_ns <= train_ns <= whole_ns`."""

    rank: int
    whole_ns: int
    train_ns: int
    core_ns: int
    wait_ns: int
    work: Mapping[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its count in each kept step. Amounts that no step has are omitted."""
    computes_ns: Sequence[int]
    """Per kept step: its compute time."""
    periods_ns: Sequence[int]
    """Per kept step: from the end of the previous step to the end of this one, without evaluation and logging."""


def rank_window(
    rank: int, window: Span, kept: Sequence[StepFinished], spans: Sequence[SpanEnded]
) -> RankWindow | Absent:
    """`spans` are the pauses of the rank, in the window and outside."""
    pauses = _pauses(spans, window)
    computes_ns = [step.compute_ns for step in kept]
    train_ns = window.length_ns - sum(pause.length_ns for pause in pauses)
    found = RankWindow(
        rank=rank,
        whole_ns=window.length_ns,
        train_ns=train_ns,
        core_ns=min(train_ns, sum(computes_ns)),
        wait_ns=sum(step.wait_ns for step in kept),
        work=_work(kept),
        computes_ns=integers(computes_ns),
        periods_ns=integers(_periods_ns(window, kept, pauses)),
    )
    return _overlap(rank, pauses) or _broken_nesting(found, sum(computes_ns)) or found


def _pauses(spans: Sequence[SpanEnded], window: Span) -> list[Span]:
    """Evaluation and logging inside the window, in order."""
    clipped = (Span(span.began_ns, span.t_ns).clipped(window) for span in spans)
    return sorted((span for span in clipped if span.length_ns > 0), key=lambda span: span.began_ns)


def _work(kept: Sequence[StepFinished]) -> dict[str, Sequence[int]]:
    columns = {amount: [step.work.get(amount, 0) for step in kept] for amount in WORK}
    return {amount: integers(column) for amount, column in columns.items() if any(column)}


def _periods_ns(window: Span, kept: Sequence[StepFinished], pauses: Sequence[Span]) -> list[int]:
    moments = [window.began_ns, *(step.t_ns for step in kept)]
    running = [moment - pause for moment, pause in zip(moments, _paused_until(pauses, moments), strict=True)]
    return [later - earlier for earlier, later in pairwise(running)]


def _paused_until(pauses: Sequence[Span], moments: Sequence[int]) -> list[int]:
    """For each moment, the total time paused before it."""
    began = [pause.began_ns for pause in pauses]
    before = [0, *accumulate(pause.length_ns for pause in pauses)]
    paused: list[int] = []
    for moment in moments:
        index = bisect_right(began, moment)
        not_yet = max(0, pauses[index - 1].ended_ns - moment) if index else 0
        paused.append(before[index] - not_yet)
    return paused


def _overlap(rank: int, pauses: Sequence[Span]) -> Absent | None:
    for earlier, later in pairwise(pauses):
        if later.began_ns < earlier.ended_ns:
            moments = {"began": later.began_ns, "ended": earlier.ended_ns}
            return absent("invalid_telemetry", "window.pauses_overlap", rank=rank, **moments)
    return None


def _broken_nesting(window: RankWindow, compute_ns: int) -> Absent | None:
    parts = message("window.parts", whole=window.whole_ns, train=window.train_ns)
    for code, part_ns in (("window.compute_too_long", compute_ns), ("window.wait_too_long", window.wait_ns)):
        if part_ns > window.train_ns * (1 + DRIFT) + ROUNDING_NS:
            return absent("invalid_telemetry", code, rank=window.rank, part=part_ns, parts=parts)
    if window.core_ns <= 0:
        return absent("invalid_telemetry", "window.no_compute", rank=window.rank, part=compute_ns, parts=parts)
    return None
