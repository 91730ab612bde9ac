"""How long the whole job, its start and its training took. Times of two machines are never subtracted."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.events import EventFile, WorkersEnded, WorkersLaunched
from flagperf.metrics.finding import Absent, Finding, Findings, Found, named
from flagperf.metrics.ranks import RankRecord, of
from flagperf.metrics.throughput import SECOND_NS
from flagperf.metrics.training import NO_TRAINING, Training
from flagperf.spec import Job, Manifest


def times(
    job: Job,
    manifest: Manifest,
    parent: EventFile,
    ranks: Sequence[RankRecord],
    training: Training | Absent,
    failure: Absent | None,
) -> Findings:
    launched = of(parent.events, WorkersLaunched)
    return {
        "e2e_time": failure or _e2e_time(job, launched, of(parent.events, WorkersEnded)),
        "init_time": _init_time(job, manifest, launched, ranks),
        "train_time": NO_TRAINING if manifest.kind == "inference" else _train_time(training),
    }


def _e2e_time(job: Job, launched: Sequence[WorkersLaunched], ended: Sequence[WorkersEnded]) -> Finding:
    """On the parent's clock, to which all nodes report."""
    for what, events in (("launch", launched), ("end", ended)):
        missing = sorted({node.index for node in job.nodes} - {event.node_index for event in events})
        if missing:
            return Absent("run_failed", f"the parent recorded no {what} of the workers of {named('node', missing)}")
    failed = [event.node_index for event in ended if event.returncode]
    if failed:
        return Absent("run_failed", f"the workers of {named('node', failed)} ended with a code other than 0")
    span_ns = max(event.t_ns for event in ended) - min(event.t_ns for event in launched)
    if span_ns <= 0:
        return Absent("invalid_telemetry", f"the last workers ended {-span_ns} ns before the first were launched")
    return Found(span_ns / SECOND_NS)


def _init_time(
    job: Job, manifest: Manifest, launched: Sequence[WorkersLaunched], ranks: Sequence[RankRecord]
) -> Finding:
    if manifest.kind == "inference":
        return Absent("not_applicable", "an inference case has no beginning of training")
    per_node: dict[str, float] = {}
    for node in job.nodes:
        start = next((event for event in launched if event.node_index == node.index), None)
        own = [record for record in ranks if record.started.node_index == node.index]
        seconds = _node_init_seconds(node.index, len(node.devices), start, own)
        if isinstance(seconds, Absent):
            return seconds
        per_node[str(node.index)] = seconds
    return Found(max(per_node.values()), {"per_node": per_node})


def _node_init_seconds(
    node_index: int, num_ranks: int, start: WorkersLaunched | None, ranks: Sequence[RankRecord]
) -> float | Absent:
    if start is None:
        return Absent("run_failed", f"the parent recorded no launch of the workers of node {node_index}")
    began = [record.began[0].t_ns for record in ranks if record.began]
    if len(began) < num_ranks:
        return Absent("run_failed", f"{len(began)} of {num_ranks} ranks of node {node_index} began training")
    boots = {record.started.clock.boot_id for record in ranks}
    if len(boots) > 1:
        return Absent("invalid_telemetry", f"ranks of node {node_index} have clocks of {len(boots)} machines")
    span_ns = max(began) - start.node_t_ns
    if span_ns < 0:
        return Absent("invalid_telemetry", f"node {node_index} began training {-span_ns} ns before its launch")
    return span_ns / SECOND_NS


def _train_time(training: Training | Absent) -> Finding:
    if isinstance(training, Absent):
        return training
    longest = max(training.ranks, key=lambda rank: rank.span.length_ns)
    return Found(longest.span.length_ns / SECOND_NS, {"rank": longest.rank})
