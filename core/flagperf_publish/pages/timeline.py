"""A run over time; reads events itself, since a rank that died has a course too."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, gt, truediv
from pathlib import Path
from typing import cast

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

# RankCourse: what one rank did when, in seconds since its node launched the workers. For charts: nothing here is
# validated, and a rank that died has as much of a course as it recorded.


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


# Many values as few points: each point has the middle of its values and their extremes, so that no spike is lost.


MAX_POINTS = 120
"""More cannot be told apart on a chart."""


class Bucket(msgspec.Struct, frozen=True):
    x: float
    low: float
    middle: float
    high: float


Buckets = tuple[Bucket, ...]


def ratios(xs: Sequence[float], amounts: Sequence[float], durations: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Amount by duration: of a bucket the ratio of the sums, and the extremes of single ratios. `x` is that of the last
    value of a bucket. Values without a duration are left out."""
    if min(durations, default=1) <= 0:
        kept = [index for index, duration in enumerate(durations) if duration > 0]
        xs, amounts, durations = ([column[index] for index in kept] for column in (xs, amounts, durations))
    single = list(map(truediv, amounts, durations))
    return tuple(
        Bucket(xs[part.stop - 1], min(single[part]), sum(amounts[part]) / sum(durations[part]), max(single[part]))
        for part in _parts(len(single), num)
    )


def means(xs: Sequence[float], ys: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Consecutive values, the same number in each bucket. `x` is that of the last value of a bucket."""
    return ratios(xs, ys, [1.0] * len(ys), num)


def on_grid(xs: Sequence[float], ys: Sequence[float], low: float, high: float, num: int) -> Buckets:
    """On `num` even places from `low` to `high`, so that several curves can be put together; places without a value are
    left out. `xs` increase."""
    edges = [low + (high - low) * place / num for place in range(1, num)]
    ends = [*(bisect_left(xs, edge) for edge in edges), len(xs)]
    places = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    return tuple(_cell(xs[place], ys[place]) for place in places)


def _cell(xs: Sequence[float], ys: Sequence[float]) -> Bucket:
    return Bucket((xs[0] + xs[-1]) / 2, min(ys), sum(ys) / len(ys), max(ys))


def _parts(count: int, num: int) -> list[slice]:
    """At most `num` slices of nearly equal length."""
    num = min(count, num)
    return [slice(index * count // num, (index + 1) * count // num) for index in range(num)]


# RunCourse: a run over time, reduced to what charts show. Ranks and nodes may be a part of those of the run.


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


class ChartedRuns(PageRuns, frozen=True):
    """The runs of a page with charts."""

    courses: Mapping[str, RunCourse] = {}
    """Run id -> its course over time."""


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
    started = next(iter(of_type(file.events, ProbeStarted)), None)
    if started is None:
        return {}
    wanted, read = set(device_ids), readings_by_card(of_type(file.events, Sampled))
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


# The course of a run from the raw files of its bundle. Of a large run, some ranks and nodes are read, never all:
# those that stand for extremes first, then evenly spread ones, until enough has been read.


READ_BYTES = 64 << 20
"""Of the files of ranks, and again of those of nodes: a second or two. The first of each is read whatever its size."""


def read_course(path: Path, run: Run, *, read_bytes: int = READ_BYTES) -> RunCourse:
    """Files that are damaged or not there are left out and named: a bundle may have been passed on in part."""
    missing: list[str] = []
    launched_ns = _launches(path, missing)
    ranks = tuple(_ranks(path, run, launched_ns, missing, read_bytes))
    figures: dict[str, dict[DeviceKey, CardColumns]] = {}
    num_nodes = 0
    for index, file in _samples(path, run, missing, read_bytes):
        ids = next([device.id for device in node.devices] for node in run.job.nodes if node.index == index)
        num_nodes += 1
        for figure, cards in node_figures(file, ids, launched_ns.get(index, _first_ns(file))).items():
            figures.setdefault(figure, {}).update(cards)
    return RunCourse(
        ranks=ranks,
        steps=step_course(ranks, _amount(run), None if len(ranks) == run.job.world_size else _work_per_step(run)),
        cards={figure: card_courses(cards) for figure, cards in figures.items()},
        num_nodes=num_nodes,
        missing=tuple(missing),
    )


def _launches(path: Path, missing: list[str]) -> dict[int, int]:
    """Node -> when its workers were launched, on its own clock."""
    file = _read(path, PARENT_EVENTS, missing)
    events = file.events if file else ()
    return {event.node_index: event.node_t_ns for event in events if isinstance(event, WorkersLaunched)}


def _ranks(
    path: Path, run: Run, launched_ns: Mapping[int, int], missing: list[str], read_bytes: int
) -> Iterator[RankCourse]:
    kind = KINDS[run.manifest.kind]
    chosen = _chosen(_ranks_first(run), run.job.world_size)
    for name in _within(path, (rank_events(rank) for rank in chosen), missing, read_bytes):
        file = _read(path, name, missing)
        started = of_type(file.events, WorkerStarted) if file else ()
        if file and started:
            course = rank_course(file, kind, launched_ns.get(started[0].node_index))
            if course:
                yield course


def _samples(path: Path, run: Run, missing: list[str], read_bytes: int) -> Iterator[tuple[int, EventFile]]:
    nodes = {node_samples(node.index): node.index for node in run.job.nodes}
    chosen = _chosen(_nodes_first(run), len(run.job.nodes))
    for name in _within(path, (node_samples(run.job.nodes[place].index) for place in chosen), missing, read_bytes):
        file = _read(path, name, missing)
        if file:
            yield nodes[name], file


# --- which files ----------------------------------------------------------------------------------------------------


def _ranks_first(run: Run) -> Iterator[int]:
    """The first one, whose reports count; the slowest and the fastest; that which used most memory."""
    yield 0
    spread = run.metric("rank_spread")
    times = spread.inputs.get("step_seconds", []) if spread else []
    if times:
        yield from (times.index(max(times)), times.index(min(times)))


def _nodes_first(run: Run) -> Iterator[int]:
    """That of the card which used most memory, and the first."""
    used = run.metric("mem_used")
    peak = used.inputs.get("device_id") if used else None
    for place, node in enumerate(run.job.nodes):
        if any(device.id == peak for device in node.devices):
            yield place
            break
    yield 0


def _chosen(first: Iterable[int], count: int) -> list[int]:
    """All of `count`, in the order in which they are read: halves, quarters, eighths, so that whatever is read is
    spread evenly."""
    order: dict[int, None] = dict.fromkeys(index for index in first if index < count)
    step = 1 << max(0, count - 1).bit_length()
    while step:
        order.update(dict.fromkeys(range(0, count, step)))
        step //= 2
    return list(order)


def _within(path: Path, names: Iterable[Path], missing: list[str], read_bytes: int) -> Iterator[Path]:
    """Until they have so many bytes together."""
    left = read_bytes
    for number, name in enumerate(names):
        try:
            left -= (path / name).stat().st_size
        except OSError:
            missing.append(str(name))
            continue
        if number and left < 0:
            return
        yield name


def _read(path: Path, name: Path, missing: list[str]) -> EventFile | None:
    try:
        return read_events(path / name)
    except BadInput:
        missing.append(str(name))
        return None


def _first_ns(file: EventFile) -> int:
    return file.events[0].t_ns if file.events else 0


# --- work -----------------------------------------------------------------------------------------------------------


def _amount(run: Run) -> str:
    """What the timed throughput counts."""
    speed = run.metric(KINDS[run.manifest.kind].timed)
    return "tokens" if speed and speed.unit.startswith("token") else "samples"


def _work_per_step(run: Run) -> float | None:
    speed, kept = run.metric(KINDS[run.manifest.kind].timed), run.metric("steps_kept")
    count: float | None = speed.inputs.get("count") if speed else None
    return count / kept.value if count and kept and kept.value else None
