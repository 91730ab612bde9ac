"""RunCourse: a run over time, reduced to what charts show. Ranks and nodes may be a part of those of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, gt
from typing import cast

import msgspec

from flagperf.events import EventFile, ProbeStarted, Sampled
from flagperf.metrics.buckets import MAX_POINTS, Bucket, Buckets, means, on_grid, ratios
from flagperf.metrics.by_type import of
from flagperf.metrics.card_readings import readings_by_card
from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.columns import sums
from flagperf.metrics.rank_course import RankCourse, Spans
from flagperf.robust import median
from flagperf.units import SECOND_NS

CARD_FIGURES = ("used_bytes", "power_watts", "utilisation_percent", "temperature_celsius", "clock_mhz")
"""Fields of api.Reading that are shown over time."""

RATE_POINTS = 60
"""Single steps vary: of fewer points, each over more steps, the course is seen."""

CardColumns = tuple[Sequence[float], Sequence[float]]
"""Seconds since the launch of the workers, and the values then."""

Figures = Mapping[str, Mapping[DeviceKey, CardColumns]]
"""Figure -> card -> its values."""


class StepCourse(msgspec.Struct, frozen=True):
    """Steps of all ranks together: work is summed, and the slowest rank decides the time."""

    rates: Mapping[str, Buckets]
    """`compute` and `period` (with waiting for data) -> work per second after warm-up, over seconds since launch."""
    losses: Buckets
    """Over the numbers of the steps."""
    computes: Sequence[float]
    """Seconds of each step after warm-up."""


class RunCourse(msgspec.Struct, frozen=True):
    ranks: tuple[RankCourse, ...]
    """Those that were read, the first rank first."""
    steps: StepCourse | None
    """None for a case without steps."""
    cards: Mapping[str, Mapping[DeviceKey, Buckets]]
    """Figure -> card -> its course. Those of one figure lie on one grid of times."""
    num_nodes: int
    """Whose samples were read."""
    missing: tuple[str, ...] = ()
    """Files that could not be read, or are not there."""

    @property
    def evaluations(self) -> Spans:
        return self.ranks[0].evaluations if self.ranks else ()


def step_course(ranks: Sequence[RankCourse], amount: str, per_step: float | None) -> StepCourse | None:
    """`amount` is a key of WORK. `per_step` is the mean work of all ranks in a step, where only some were read."""
    num_steps = min((len(rank.ends) for rank in ranks), default=0)
    if not num_steps:
        return None
    kept = slice(ranks[0].num_dropped, num_steps)
    seconds = ranks[0].ends[kept]
    computes, periods = (_highest([getattr(rank, name)[kept] for rank in ranks]) for name in ("computes", "periods"))
    work = sums([rank.work[amount][kept] for rank in ranks if amount in rank.work]) or [0] * len(seconds)
    counted: Sequence[float] = [per_step] * len(seconds) if per_step else work
    durations = {"compute": computes, "period": periods}
    rates = {name: ratios(seconds, counted, of_name, RATE_POINTS) for name, of_name in durations.items()}
    losses = list(_losses(ranks, num_steps))
    return StepCourse(
        rates=rates if any(counted) else {},
        losses=means([step for step, _ in losses], [loss for _, loss in losses]),
        computes=computes,
    )


def _highest(columns: Sequence[Sequence[float]]) -> list[float]:
    return list(map(max, *columns)) if len(columns) > 1 else list(columns[0])


def _losses(ranks: Sequence[RankCourse], num_steps: int) -> Iterator[tuple[int, float]]:
    """The mean over all real samples of a step, as metrics.quality has it. Nothing for a step that lacks one."""
    counting = [(rank.losses, rank.work["samples"]) for rank in ranks if "samples" in rank.work]
    for index in range(num_steps):
        total, samples = 0.0, 0
        for losses, counts in counting:
            if counts[index]:
                total, samples = total + losses[index] * counts[index], samples + counts[index]
        if samples and math.isfinite(total):
            yield ranks[0].first_step + index, total / samples


# --- cards ----------------------------------------------------------------------------------------------------------


def node_figures(file: EventFile, device_ids: Iterable[str], launched_ns: int) -> Figures:
    """Of the node's cards in the job."""
    started = next(iter(of(file.events, ProbeStarted)), None)
    if started is None:
        return {}
    wanted, read = set(device_ids), readings_by_card(of(file.events, Sampled))
    found: dict[str, dict[DeviceKey, CardColumns]] = {}
    for device_id in sorted(wanted & set(read)):
        card = read[device_id]
        times = [(t_ns - launched_ns) / SECOND_NS for t_ns in card.times_ns]
        for figure in CARD_FIGURES:
            columns = _known(times, list(map(attrgetter(figure), card.readings)))
            if columns[0]:
                found.setdefault(figure, {})[started.node_index, device_id] = columns
    return found


def _known(times: Sequence[float], values: Sequence[float | None]) -> CardColumns:
    """Of the readings that have a value, by time."""
    if None in values or any(map(gt, times, times[1:])):
        pairs = sorted((x, value) for x, value in zip(times, values, strict=True) if value is not None)
        return [x for x, _ in pairs], [value for _, value in pairs]
    return times, cast(Sequence[float], values)


def card_courses(figures: Mapping[DeviceKey, CardColumns]) -> dict[DeviceKey, Buckets]:
    """On one grid, which is no finer than the samples."""
    low = min(xs[0] for xs, _ in figures.values())
    high = max(xs[-1] for xs, _ in figures.values())
    num = min(MAX_POINTS, max(len(xs) for xs, _ in figures.values()))
    return {card: on_grid(xs, ys, low, high, num) for card, (xs, ys) in figures.items()}


def over_cards(courses: Iterable[Buckets]) -> Buckets:
    """All cards as one: the median of the cards in each place, and the extremes of all."""
    points = sorted((bucket for course in courses for bucket in course), key=lambda bucket: bucket.x)
    width = (points[-1].x - points[0].x) / MAX_POINTS if points else 0.0
    places: dict[int, list[Bucket]] = {}
    for bucket in points:
        places.setdefault(int((bucket.x - points[0].x) / width) if width else 0, []).append(bucket)
    return tuple(
        Bucket(
            (of_place[0].x + of_place[-1].x) / 2,
            min(each.low for each in of_place),
            median([each.middle for each in of_place]),
            max(each.high for each in of_place),
        )
        for of_place in places.values()
    )
