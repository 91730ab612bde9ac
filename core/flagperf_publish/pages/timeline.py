"""A run over time, for charts. It reads events itself: a rank that died has a timeline too, so nothing is validated."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, gt, truediv
from pathlib import Path

import msgspec

from flagperf.bundle.paths import PARENT_EVENTS, node_samples, rank_events
from flagperf.bundle.run_record import Run
from flagperf.errors import BadInput
from flagperf.event_files import EventFile, EventsByType, Span, of_type, read_events
from flagperf.events import (
    ProbeStarted,
    Reported,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
    WorkerEnded,
    WorkersLaunched,
    WorkerStarted,
)
from flagperf.kinds import KINDS, Kind
from flagperf.metrics.entry import DeviceKey
from flagperf.metrics.node_record import readings_by_card
from flagperf.metrics.rank_record import floats, periods_ns, sums
from flagperf.report.page_runs import PageRuns
from flagperf.stats import median
from flagperf.units import SECOND_NS

Spans = tuple[tuple[float, float], ...]

PARTS = ("start_up", "warm_up", "data_wait", "compute", "evaluation", "logging", "other", "end")
"""What the time of a rank consists of, in order."""


class RankCourse(msgspec.Struct, frozen=True):
    """What one rank did when, in seconds since its node launched the workers."""

    rank: int
    began: float
    """When the loop began."""
    measured: float
    """When its warm-up ended."""
    ended: float
    evaluations: Spans
    first_step: int
    num_dropped: int
    """Steps of warm-up."""
    ends: Sequence[float]
    """End of each step. All columns below are of the same steps."""
    periods: Sequence[float]
    """From the end of the previous step, without evaluation and logging."""
    computes: Sequence[float]
    losses: Sequence[float]
    """NaN where a step has none."""
    work: Mapping[str, Sequence[int]]
    reports: Sequence[tuple[int, Mapping[str, float]]]
    """Step, and what the case reported then."""
    parts: Mapping[str, float]
    """Part of PARTS -> its seconds. Empty for a rank that did not finish its loop."""


def rank_course(file: EventFile, kind: Kind, launched_ns: int | None) -> RankCourse | None:
    """Return None if no measured loop began. Without a launch, times count from the first event."""
    events = EventsByType(file.events)
    started, ended = events[WorkerStarted], events[WorkerEnded]
    steps, warmups = events[StepFinished], events[WarmupEnded]
    began = [span for span in events[SpanBegan] if span.name == kind.name]
    ends = [span for span in events[SpanEnded] if span.name == kind.name]
    pauses = [span for span in events[SpanEnded] if span.name in kind.pauses]
    if not started or not began:
        return None
    zero_ns = file.events[0].t_ns if launched_ns is None else launched_ns
    began_ns, steps_ns = began[0].t_ns, [step.t_ns for step in steps]
    ended_ns = ends[0].t_ns if ends else max([began_ns, *steps_ns])
    warm_ns = warmups[0].t_ns if warmups else began_ns
    parts: dict[str, float] = {}
    if ends and ended:  # `other` is what is left, and clocks of device and host differ a little: nothing is negative
        late = steps[bisect_right(steps_ns, warm_ns) :]
        inside = {"data_wait": sum(step.wait_ns for step in late), "compute": sum(step.compute_ns for step in late)}
        for name in ("evaluation", "logging"):
            own = [span for span in pauses if span.name == name]
            inside[name] = sum(max(0, min(span.t_ns, ended_ns) - max(span.began_ns, warm_ns)) for span in own)
        found = {
            "start_up": began_ns - zero_ns,
            "warm_up": warm_ns - began_ns,
            **inside,
            "other": ended_ns - warm_ns - sum(inside.values()),
            "end": ended[-1].t_ns - ended_ns,
        }
        parts = {name: max(0, found[name]) / SECOND_NS for name in PARTS}

    def seconds(t_ns: int) -> float:
        return (t_ns - zero_ns) / SECOND_NS

    spans = sorted((Span(span.began_ns, span.t_ns) for span in pauses), key=attrgetter("began_ns", "ended_ns"))
    amounts = sorted({amount for step in steps for amount in step.work})
    return RankCourse(
        rank=started[0].rank,
        began=seconds(began_ns),
        measured=seconds(warm_ns),
        ended=seconds(ended_ns),
        evaluations=tuple((seconds(span.began_ns), seconds(span.t_ns)) for span in pauses if span.name == "evaluation"),
        first_step=steps[0].step if steps else 0,
        num_dropped=bisect_right([step.step for step in steps], warmups[0].step) if warmups else 0,
        ends=floats(map(seconds, steps_ns)),
        periods=floats(period / SECOND_NS for period in periods_ns(began_ns, steps_ns, spans)),
        computes=floats(step.compute_ns / SECOND_NS for step in steps),
        losses=floats(math.nan if step.loss is None else step.loss for step in steps),
        work={amount: [step.work.get(amount, 0) for step in steps] for amount in amounts},
        reports=[(report.step, report.values) for report in events[Reported]],
        parts=parts,
    )


# --- many values as few points: each has the middle of its values and their extremes, so that no spike is lost -------

MAX_POINTS = 120
"""More cannot be told apart on a chart."""


class Bucket(msgspec.Struct, frozen=True):
    x: float
    low: float
    middle: float
    high: float


Buckets = tuple[Bucket, ...]


def ratios(xs: Sequence[float], amounts: Sequence[float], durations: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Return amounts by durations: of each bucket the ratio of the sums, and the extremes of the single ratios.

    A bucket has the `x` of its last value. Values without a duration are left out.
    """
    if min(durations, default=1) <= 0:
        kept = [index for index, duration in enumerate(durations) if duration > 0]
        xs, amounts, durations = ([column[index] for index in kept] for column in (xs, amounts, durations))
    single = list(map(truediv, amounts, durations))
    num = min(len(single), num)
    parts = [slice(index * len(single) // num, (index + 1) * len(single) // num) for index in range(num)]
    return tuple(
        Bucket(xs[part.stop - 1], min(single[part]), sum(amounts[part]) / sum(durations[part]), max(single[part]))
        for part in parts
    )


def means(xs: Sequence[float], ys: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Put the same number of consecutive values into each bucket, which has the `x` of its last value."""
    return ratios(xs, ys, [1.0] * len(ys), num)


def on_grid(xs: Sequence[float], ys: Sequence[float], low: float, high: float, num: int) -> Buckets:
    """Put values on `num` even places from `low` to `high`, so that several curves can be put together.

    Places without a value are left out. `xs` increase.
    """
    edges = [low + (high - low) * place / num for place in range(1, num)]
    ends = [*(bisect_left(xs, edge) for edge in edges), len(xs)]
    places = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    return tuple(
        Bucket((xs[place][0] + xs[place][-1]) / 2, min(ys[place]), sum(ys[place]) / len(ys[place]), max(ys[place]))
        for place in places
    )


# --- what charts show of a run ---------------------------------------------------------------------------------------

CARD_FIGURES = ("used_bytes", "power_watts", "utilisation_percent", "temperature_celsius", "clock_mhz")
"""Fields of api.Reading that are shown over time."""

RATE_POINTS = 60
"""Single steps vary: fewer points, each over more steps, show how the run goes."""

CardColumns = tuple[Sequence[float], Sequence[float]]
"""Seconds since the launch of the workers, and the values then."""

Figures = Mapping[str, Mapping[DeviceKey, CardColumns]]
"""Figure -> card -> its values."""


class StepCourse(msgspec.Struct, frozen=True):
    """The steps of all ranks together: work is summed, and the slowest rank decides the time."""

    rates: Mapping[str, Buckets]
    """`compute` and `period` (with waiting for data) -> work per second after warm-up, over seconds since launch."""
    losses: Buckets
    """Over the numbers of the steps."""
    computes: Sequence[float]
    """Seconds of each step after warm-up."""


class RunCourse(msgspec.Struct, frozen=True):
    """A run over time, reduced to what charts show. Ranks and nodes may be a part of those of the run."""

    ranks: tuple[RankCourse, ...]
    """The ranks that were read, the first rank first."""
    steps: StepCourse | None
    """None for a case without steps."""
    cards: Mapping[str, Mapping[DeviceKey, Buckets]]
    """Figure -> device -> its values over time. All devices of one figure lie on one grid of times."""
    num_nodes: int
    """Nodes whose samples were read."""
    missing: tuple[str, ...] = ()
    """Files that could not be read, or are not there."""

    @property
    def evaluations(self) -> Spans:
        return self.ranks[0].evaluations if self.ranks else ()


class ChartedRuns(PageRuns, frozen=True):
    """The runs of a page with charts."""

    courses: Mapping[str, RunCourse] = {}
    """Run id -> the run over time."""


def step_course(ranks: Sequence[RankCourse], amount: str, per_step: float | None) -> StepCourse | None:
    """Join the steps of ranks. Return None without steps.

    `amount` is a key of WORK. `per_step` is the mean work of all ranks in a step, where only some ranks were read.
    """
    num_steps = min((len(rank.ends) for rank in ranks), default=0)
    if not num_steps:
        return None
    kept = slice(ranks[0].num_dropped, num_steps)
    seconds = ranks[0].ends[kept]
    durations = {
        name: [max(step) for step in zip(*(getattr(rank, column)[kept] for rank in ranks), strict=True)]
        for name, column in (("compute", "computes"), ("period", "periods"))
    }
    work = sums([rank.work[amount][kept] for rank in ranks if amount in rank.work]) or [0] * len(seconds)
    counted: Sequence[float] = [per_step] * len(seconds) if per_step else work
    rates = {name: ratios(seconds, counted, of_name, RATE_POINTS) for name, of_name in durations.items()}

    # a loss is the mean over all real samples of a step, as metrics.quality has it; steps that lack one are left out
    steps: list[float] = []
    losses: list[float] = []
    counting = [(rank.losses, rank.work["samples"]) for rank in ranks if "samples" in rank.work]
    for index in range(num_steps):
        total, samples = 0.0, 0
        for of_rank, counts in counting:
            if counts[index]:
                total, samples = total + of_rank[index] * counts[index], samples + counts[index]
        if samples and math.isfinite(total):
            steps.append(ranks[0].first_step + index)
            losses.append(total / samples)
    return StepCourse(rates if any(counted) else {}, means(steps, losses), durations["compute"])


def node_figures(file: EventFile, device_ids: Iterable[str], launched_ns: int) -> Figures:
    """Return what the probe of a node read of these devices, by time. Readings without a value are left out."""
    started = next(iter(of_type(file.events, ProbeStarted)), None)
    if started is None:
        return {}
    wanted, read = set(device_ids), readings_by_card(of_type(file.events, Sampled))
    found: dict[str, dict[DeviceKey, CardColumns]] = {}
    for device_id in sorted(wanted & set(read)):
        card = read[device_id]
        times = [(t_ns - launched_ns) / SECOND_NS for t_ns in card.times_ns]
        for figure in CARD_FIGURES:
            xs, values = times, list(map(attrgetter(figure), card.readings))
            if None in values or any(map(gt, times, times[1:])):
                pairs = sorted((x, value) for x, value in zip(times, values, strict=True) if value is not None)
                xs, values = [x for x, _ in pairs], [value for _, value in pairs]
            if xs:
                found.setdefault(figure, {})[started.node_index, device_id] = (xs, values)
    return found


def card_courses(figures: Mapping[DeviceKey, CardColumns]) -> dict[DeviceKey, Buckets]:
    """Put the devices on one grid, not finer than the samples."""
    low = min(xs[0] for xs, _ in figures.values())
    high = max(xs[-1] for xs, _ in figures.values())
    num = min(MAX_POINTS, max(len(xs) for xs, _ in figures.values()))
    return {card: on_grid(xs, ys, low, high, num) for card, (xs, ys) in figures.items()}


def over_cards(courses: Iterable[Buckets]) -> Buckets:
    """Return all devices as one: the median of the devices in each place, and the extremes of all."""
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


# --- reading: of a large run some ranks and nodes, those that stand for extremes first, then evenly spread ones ------

READ_BYTES = 64 << 20
"""Of the files of ranks, and again of those of nodes: a second or two. The first of each is read whatever its size."""


def read_course(path: Path, run: Run, *, read_bytes: int = READ_BYTES) -> RunCourse:
    """Read the raw files of a bundle.

    Files that are damaged or not there are left out and named: a bundle may have been passed on in part.
    """
    missing: list[str] = []
    launched_ns: dict[int, int] = {}  # node -> when its workers were launched, on its own clock
    for _, file in _files(path, [PARENT_EVENTS], missing, read_bytes):
        launched_ns |= {event.node_index: event.node_t_ns for event in of_type(file.events, WorkersLaunched)}

    kind = KINDS[run.manifest.kind]
    ranks, first = [], [0]  # its reports count; then the slowest rank and the fastest
    if (spread := run.metric("rank_spread")) and (times := spread.inputs.get("step_seconds")):
        first += [times.index(max(times)), times.index(min(times))]
    for _, file in _files(path, map(rank_events, _chosen(first, run.job.world_size)), missing, read_bytes):
        started = of_type(file.events, WorkerStarted)
        course = rank_course(file, kind, launched_ns.get(started[0].node_index)) if started else None
        if course:
            ranks.append(course)

    num_nodes, figures = 0, dict[str, dict[DeviceKey, CardColumns]]()
    nodes = {node_samples(node.index): node for node in run.job.nodes}
    used = run.metric("mem_used")  # the node of the device that used most comes first, then the first node
    peak = used.inputs.get("device_id") if used else None
    fullest = [place for place, node in enumerate(run.job.nodes) if any(device.id == peak for device in node.devices)]
    names = [list(nodes)[place] for place in _chosen([*fullest[:1], 0], len(nodes))]
    for name, file in _files(path, names, missing, read_bytes):
        num_nodes += 1
        ids, first_ns = [device.id for device in nodes[name].devices], file.events[0].t_ns if file.events else 0
        for figure, cards in node_figures(file, ids, launched_ns.get(nodes[name].index, first_ns)).items():
            figures.setdefault(figure, {}).update(cards)

    speed, kept = run.metric(kind.timed), run.metric("steps_kept")
    per_step = None
    if len(ranks) < run.job.world_size and speed and speed.inputs.get("count") and kept and kept.value:
        per_step = speed.inputs["count"] / kept.value
    amount = "tokens" if speed and speed.unit.startswith("token") else "samples"
    return RunCourse(
        ranks=tuple(ranks),
        steps=step_course(ranks, amount, per_step),
        cards={figure: card_courses(cards) for figure, cards in figures.items()},
        num_nodes=num_nodes,
        missing=tuple(missing),
    )


def _chosen(first: Iterable[int], count: int) -> list[int]:
    """Return all numbers below `count` in the order of reading: halves, quarters, eighths, so that any part of it is
    spread evenly."""
    order: dict[int, None] = dict.fromkeys(index for index in first if index < count)
    step = 1 << max(0, count - 1).bit_length()
    while step:
        order.update(dict.fromkeys(range(0, count, step)))
        step //= 2
    return list(order)


def _files(path: Path, names: Iterable[Path], missing: list[str], read_bytes: int) -> Iterator[tuple[Path, EventFile]]:
    """Read files until they have so many bytes together."""
    left = read_bytes
    for number, name in enumerate(names):
        try:
            left -= (path / name).stat().st_size
            if number and left < 0:
                return
            yield name, read_events(path / name)
        except (OSError, BadInput):
            missing.append(str(name))
