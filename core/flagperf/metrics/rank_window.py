"""RankWindow: the durations and counts of one rank after warm-up, made while its file is read. A record whose durations
do not nest is rejected."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter, sub

import msgspec

from flagperf.events import SpanEnded
from flagperf.messages import message
from flagperf.metrics.columns import integers
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.span import Span
from flagperf.metrics.steps import Steps

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
    """Amount of work (a key of WORK) -> its count in each kept step, for those that a step has."""
    computes_ns: Sequence[int]
    """Per kept step: its compute time."""
    periods_ns: Sequence[int]
    """Per kept step: from the end of the previous step to the end of this one, without evaluation and logging."""


Pauses = Sequence[tuple[int, int]]
"""Start and end of each, in nanoseconds."""


def rank_window(rank: int, window: Span, steps: Steps, dropped: int, spans: Sequence[SpanEnded]) -> RankWindow | Absent:
    """All steps but the first, which are dropped. `spans` are the pauses of the rank, in the window and outside."""
    pauses = _pauses(spans, window)
    computes_ns = steps.computes_ns[dropped:]
    train_ns = window.length_ns - sum(ended_ns - began_ns for began_ns, ended_ns in pauses)
    found = RankWindow(
        rank=rank,
        whole_ns=window.length_ns,
        train_ns=train_ns,
        core_ns=min(train_ns, sum(computes_ns)),
        wait_ns=sum(steps.waits_ns[dropped:]),
        work={amount: integers(column[dropped:]) for amount, column in steps.work.items()},
        computes_ns=integers(computes_ns),
        periods_ns=integers(periods_ns(window.began_ns, steps.ended_ns[dropped:], pauses)),
    )
    return _overlap(rank, pauses) or _broken_nesting(found, sum(computes_ns)) or found


def _pauses(spans: Sequence[SpanEnded], window: Span) -> Pauses:
    """Evaluation and logging inside the window, in order."""
    first_ns, last_ns = window.began_ns, window.ended_ns
    clipped = [(max(span.began_ns, first_ns), min(span.t_ns, last_ns)) for span in spans]
    return sorted((pause for pause in clipped if pause[0] < pause[1]), key=itemgetter(0))


def periods_ns(began_ns: int, ended_ns: Sequence[int], pauses: Pauses) -> list[int]:
    moments = [began_ns, *ended_ns]
    running = list(map(sub, moments, _paused_until(pauses, moments)))
    return list(map(sub, running[1:], running))


def _paused_until(pauses: Pauses, moments: Sequence[int]) -> list[int]:
    """For each moment, the total time paused before it."""
    began, ended = [pause[0] for pause in pauses], [pause[1] for pause in pauses]
    before = [0, *accumulate(map(sub, ended, began))]
    paused: list[int] = []
    for moment in moments:
        index = bisect_right(began, moment)
        is_paused = index > 0 and moment < ended[index - 1]
        paused.append(before[index] - (ended[index - 1] - moment if is_paused else 0))
    return paused


def _overlap(rank: int, pauses: Pauses) -> Absent | None:
    for (_, ended_ns), (began_ns, _) in pairwise(pauses):
        if began_ns < ended_ns:
            return absent("invalid_telemetry", "window.pauses_overlap", rank=rank, began=began_ns, ended=ended_ns)
    return None


def _broken_nesting(window: RankWindow, compute_ns: int) -> Absent | None:
    parts = message("window.parts", whole=window.whole_ns, train=window.train_ns)
    for code, part_ns in (("window.compute_too_long", compute_ns), ("window.wait_too_long", window.wait_ns)):
        if part_ns > window.train_ns * (1 + DRIFT) + ROUNDING_NS:
            return absent("invalid_telemetry", code, rank=window.rank, part=part_ns, parts=parts)
    if window.core_ns <= 0:
        return absent("invalid_telemetry", "window.no_compute", rank=window.rank, part=compute_ns, parts=parts)
    return None
