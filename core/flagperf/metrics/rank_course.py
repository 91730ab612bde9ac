"""RankCourse: what one rank did when, in seconds since its node launched the workers. For charts: nothing here is
validated, and a rank that died has as much of a course as it recorded."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from flagperf.metrics.columns import floats
from flagperf.metrics.rank_events import RankEvents
from flagperf.metrics.rank_window import periods_ns
from flagperf.units import SECOND_NS

Spans = tuple[tuple[float, float], ...]

PARTS = ("start_up", "warm_up", "data_wait", "compute", "evaluation", "logging", "other", "end")
"""What the time of a rank consists of, in order."""


class RankCourse(msgspec.Struct, frozen=True):
    rank: int
    began: float
    """Of the measured span."""
    measured: float
    """End of its warm-up."""
    ended: float
    evaluations: Spans
    first_step: int
    num_dropped: int
    """Steps of warm-up."""
    ends: Sequence[float]
    """Of each step, as all columns below."""
    periods: Sequence[float]
    """From the end of the previous step, without evaluation and logging."""
    computes: Sequence[float]
    losses: Sequence[float]
    """NaN where there is none."""
    work: Mapping[str, Sequence[int]]
    reports: Sequence[tuple[int, Mapping[str, float]]]
    """Step, and what the case reported then."""
    parts: Mapping[str, float]
    """Part of PARTS -> its seconds. Empty for a rank that did not finish its measured span."""


def rank_course(events: RankEvents, launched_ns: int) -> RankCourse | None:
    """None if no measured span began."""
    if not events.loop_began:
        return None
    steps, began_ns = events.steps, events.loop_began[0].t_ns
    last_ns = events.loop_ended[0].t_ns if events.loop_ended else max([began_ns, *steps.ended_ns])
    warm_ns = events.warmups[0].t_ns if events.warmups else began_ns
    pauses = sorted((span.began_ns, span.t_ns) for span in events.pauses)

    def seconds(t_ns: int) -> float:
        return (t_ns - launched_ns) / SECOND_NS

    return RankCourse(
        rank=events.rank,
        began=seconds(began_ns),
        measured=seconds(warm_ns),
        ended=seconds(last_ns),
        evaluations=tuple(
            (seconds(span.began_ns), seconds(span.t_ns)) for span in events.pauses if span.name == "evaluation"
        ),
        first_step=steps.numbers[0] if steps else 0,
        num_dropped=bisect_right(steps.numbers, events.warmups[0].step) if events.warmups else 0,
        ends=floats(map(seconds, steps.ended_ns)),
        periods=floats(period / SECOND_NS for period in periods_ns(began_ns, steps.ended_ns, pauses)),
        computes=floats(compute / SECOND_NS for compute in steps.computes_ns),
        losses=floats(math.nan if loss is None else loss for loss in steps.losses),
        work=steps.work,
        reports=[(report.step, report.values) for report in events.reports],
        parts=_parts(events, launched_ns, warm_ns) if events.loop_ended and events.ended else {},
    )


def _parts(events: RankEvents, launched_ns: int, warm_ns: int) -> dict[str, float]:
    """`other` is what is left of the measured time. Nothing is negative: clocks of device and host differ a little."""
    assert events.ended is not None
    began_ns, ended_ns = events.loop_began[0].t_ns, events.loop_ended[0].t_ns
    first = bisect_right(events.steps.ended_ns, warm_ns)
    found = {
        "start_up": began_ns - launched_ns,
        "warm_up": warm_ns - began_ns,
        "data_wait": sum(events.steps.waits_ns[first:]),
        "compute": sum(events.steps.computes_ns[first:]),
        **{name: _inside(events, name, warm_ns, ended_ns) for name in ("evaluation", "logging")},
        "end": events.ended.t_ns - ended_ns,
    }
    measured = sum(found[name] for name in ("data_wait", "compute", "evaluation", "logging"))
    found["other"] = ended_ns - warm_ns - measured
    return {name: max(0, found[name]) / SECOND_NS for name in PARTS}


def _inside(events: RankEvents, name: str, low_ns: int, high_ns: int) -> int:
    spans = [span for span in events.pauses if span.name == name]
    return sum(max(0, min(span.t_ns, high_ns) - max(span.began_ns, low_ns)) for span in spans)
