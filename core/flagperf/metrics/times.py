"""Duration of the whole job, its start-up and its training. Timestamps of two machines are never subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagperf import units
from flagperf.events import WorkersEnded, WorkersLaunched
from flagperf.metrics.by_type import of
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.finding import Absent, Finding, Found, absent, named
from flagperf.metrics.observed import Observed
from flagperf.units import SECOND_NS

if TYPE_CHECKING:
    from flagperf.metrics.ranks import RankRecord


def e2e_time(run: Observed) -> Finding:
    """Uses the parent's clock: all nodes report to the parent."""
    if run.failure:
        return run.failure
    events = run.record.parent.events
    launched, ended = of(events, WorkersLaunched), of(events, WorkersEnded)
    wanted = {node.index for node in run.job.nodes}
    for code, found in (("times.no_launch", launched), ("times.no_end", ended)):
        missing = sorted(wanted - {event.node_index for event in found})
        if missing:
            return absent("run_failed", code, nodes=named("node", missing))
    failed = [event.node_index for event in ended if event.returncode]
    if failed:
        return absent("run_failed", "times.nonzero_code", nodes=named("node", failed))
    span_ns = max(event.t_ns for event in ended) - min(event.t_ns for event in launched)
    if span_ns <= 0:
        return absent("invalid_telemetry", "times.ended_before_launch", ns=-span_ns)
    return Found(span_ns / SECOND_NS)


def init_time(run: Observed) -> Finding:
    launched = {event.node_index: event for event in reversed(of(run.record.parent.events, WorkersLaunched))}
    ranks: dict[int, list[RankRecord]] = {}
    for record in run.ranks:
        ranks.setdefault(record.started.node_index, []).append(record)
    per_node: dict[str, float] = {}
    for node in run.job.nodes:
        seconds = _node_init_seconds(node.index, len(node.devices), launched.get(node.index), ranks.get(node.index, []))
        if isinstance(seconds, Absent):
            return seconds
        per_node[str(node.index)] = seconds
    return Found(max(per_node.values()), {"per_node": per_node})


def _node_init_seconds(
    node_index: int, num_ranks: int, start: WorkersLaunched | None, ranks: Sequence[RankRecord]
) -> float | Absent:
    if start is None:
        return absent("run_failed", "times.no_launch", nodes=named("node", [node_index]))
    began = [record.began_ns[0] for record in ranks if record.began_ns]
    if len(began) < num_ranks:
        return absent("run_failed", "times.few_began", count=len(began), all=num_ranks, node=node_index)
    boots = {record.started.clock.boot_id for record in ranks}
    if len(boots) > 1:
        return absent("invalid_telemetry", "times.several_clocks", node=node_index, count=len(boots))
    span_ns = max(began) - start.node_t_ns
    if span_ns < 0:
        return absent("invalid_telemetry", "times.began_before_launch", node=node_index, ns=-span_ns)
    return span_ns / SECOND_NS


def train_time(run: Observed) -> Finding:
    if isinstance(run.loop, Absent):
        return run.loop
    longest = max(run.loop.ranks, key=lambda rank: rank.span.length_ns)
    return Found(longest.span.length_ns / SECOND_NS, {"rank": longest.rank})


METRICS = (
    MetricEntry(
        name="e2e_time",
        unit="s",
        group="job",
        scope="job",
        formula=e2e_time,
        format=units.one_decimal,
        better="quicker",
        title={"en": "End-to-end time", "zh": "端到端时间"},
        remark={
            "en": "from the start of the first process to the end of the last, s",
            "zh": "从首个进程启动到最后一个进程结束，单位秒",
        },
    ),
    MetricEntry(
        name="init_time",
        unit="s",
        group="training_times",
        scope="job",
        formula=init_time,
        format=units.one_decimal,
        better="quicker",
        title={"en": "Start-up time", "zh": "启动时间"},
        remark={
            "en": "from the start of a node's first process to the start of training, s",
            "zh": "从节点首个进程启动到训练开始，单位秒",
        },
    ),
    MetricEntry(
        name="train_time",
        unit="s",
        group="training_times",
        scope="job",
        formula=train_time,
        format=units.one_decimal,
        better="quicker",
        title={"en": "Training time", "zh": "训练时间"},
        remark={"en": "all steps and evaluations, s", "zh": "全部训练步与评估，单位秒"},
    ),
)
