"""The course of a run from the raw files of its bundle. Of a large run, some ranks and nodes are read, never all: those
that stand for extremes first, then evenly spread ones, until enough has been read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from flagperf.errors import BadInput
from flagperf.events import EventFile, WorkersLaunched, read_events
from flagperf.kinds import KINDS
from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.course import CardColumns, RunCourse, card_courses, node_figures, step_course
from flagperf.metrics.rank_course import RankCourse, rank_course
from flagperf.metrics.rank_events import rank_events as events_of_rank
from flagperf.store.paths import PARENT_EVENTS, node_samples, rank_events
from flagperf.store.run import Run

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
        events = events_of_rank(file, kind) if file else None
        if file and events:
            node = events.started.node_index
            course = rank_course(events, launched_ns.get(node, _first_ns(file)))
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
