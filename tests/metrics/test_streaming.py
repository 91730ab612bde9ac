"""Files are read one by one, each once, and of each only what the metrics need is kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from metric_builders import (
    began,
    ended,
    make_job,
    make_manifest,
    ns,
    rank_file,
    sample_file,
    started,
    steps_of_a_second,
)

from flagperf.api import Reading
from flagperf.event_files import EventFile, EventFiles, EventWriter
from flagperf.events import Sampled
from flagperf.metrics.entry import Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics

NUM_STEPS = 1000
EMPTY = EventFile(())


def write_ranks(folder: Path, num_ranks: int) -> Record:
    steps = steps_of_a_second(NUM_STEPS, samples=4, tokens=10, padded_tokens=6, loss=0.5)
    for rank in range(num_ranks):
        _write(folder / f"rank-{rank:05d}.jsonl", rank_file(began(0), *steps, ended(NUM_STEPS), rank=rank))
    return Record(EMPTY, EventFiles(folder.glob("rank-*")), ())


def write_nodes(folder: Path, num_nodes: int) -> Record:
    """Each with one card, which is read every second of the loop. The ranks are the same for all nodes."""
    read = [Sampled(ns(at), (Reading("card-0", 1 << 30, power_watts=300.0),)) for at in range(NUM_STEPS)]
    for node in range(num_nodes):
        _write(folder / f"node-{node:03d}.jsonl", sample_file(*read, node_index=node))
    events = (began(0), *steps_of_a_second(1), ended(NUM_STEPS))
    ranks = [
        EventFile((started(node, node, device_id="card-0"), *events, rank_file().events[-1]))
        for node in range(num_nodes)
    ]
    return Record(EMPTY, ranks, EventFiles(folder.glob("node-*")))


def _write(path: Path, file: EventFile) -> None:
    with EventWriter(path) as writer:
        writer.write(*file.events)


@pytest.mark.parametrize(
    ("write", "metric", "limit_bytes"),
    [
        (write_ranks, "p_core", 100 * NUM_STEPS),  # a few columns of eight bytes; events would take 600 a step
        (write_nodes, "energy", 20_000),  # nothing that depends on the number of samples
    ],
)
def test_memory_grows_by_what_is_kept(
    tmp_path: Path, write: Callable[[Path, int], Record], metric: str, limit_bytes: int
) -> None:
    few, many = (peak_bytes(write(_folder(tmp_path, count), count), count, metric, write) for count in (4, 12))
    assert (many - few) / 8 < limit_bytes


def _folder(parent: Path, count: int) -> Path:
    (parent / str(count)).mkdir()
    return parent / str(count)


def peak_bytes(record: Record, count: int, metric: str, write: Callable[[Path, int], Record]) -> int:
    job = make_job([count] if write is write_ranks else [1] * count)
    tracemalloc.start()
    try:
        metrics = compute_metrics(Observed(job, make_manifest(), record))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert next(each for each in metrics if each.name == metric).value
    return peak


class CountedFiles:
    """Counts how often they were read."""

    def __init__(self, *files: EventFile) -> None:
        self.files, self.count = files, 0

    def __iter__(self) -> Iterator[EventFile]:
        self.count += 1
        return iter(self.files)


def test_every_file_is_read_once_for_all_metrics_and_rows() -> None:
    ranks, samples = CountedFiles(rank_file(began(0), *steps_of_a_second(3), ended(3))), CountedFiles(sample_file())
    run = Observed(make_job(), make_manifest(), Record(EMPTY, ranks, samples))
    assert compute_metrics(run) and run.rows == () and not run.has_torn_file
    run.read_files()
    assert (ranks.count, samples.count) == (1, 1)
