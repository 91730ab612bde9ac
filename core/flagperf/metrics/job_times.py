"""End-to-end, start-up, load of the host, cost of the probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from flagperf import units
from flagperf.event_files import of_type
from flagperf.events import CpuUse, WorkersEnded, WorkersLaunched
from flagperf.metrics.entry import Absent, Finding, Found, MetricEntry, absent, named
from flagperf.metrics.observed import Observed
from flagperf.units import SECOND_NS

if TYPE_CHECKING:
    from flagperf.metrics.rank_record import RankRecord

# Duration of the whole job, its start-up and its training. Timestamps of two machines are never subtracted.


def e2e_time(run: Observed) -> Finding:
    """Uses the parent's clock: all nodes report to the parent."""
    if run.failure:
        return run.failure
    events = run.record.parent.events
    launched, ended = of_type(events, WorkersLaunched), of_type(events, WorkersEnded)
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
    launched = {event.node_index: event for event in reversed(of_type(run.record.parent.events, WorkersLaunched))}
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
    began = [record.began_ns for record in ranks if record.began_ns is not None]
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
    if isinstance(run.steps, Absent):
        return run.steps
    longest = max(run.steps, key=lambda rank: rank.loop.length_ns)
    return Found(longest.loop.seconds, {"rank": longest.rank})


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

# CPU load of the host besides the workers: other processes, and the probe itself.


BUSY_SHARE = 0.10
"""Above this share, other processes slow CPU workers down by more than the normal variation between runs."""


class _Rates(msgspec.Struct, frozen=True):
    """Average number of busy cores: by all processes, and by the run's processes on one node."""

    cores: int
    all_busy: float
    own_busy: float


def cpu_others(run: Observed) -> Finding:
    """The share on the busiest machine. Nodes on the same machine do not count as other processes."""
    machines: dict[str, list[_Rates]] = {}
    seen: set[int] = set()
    for node in run.nodes:
        rates = _rates(node.cpu)
        if node.started is not None and rates is not None:
            machines.setdefault(node.started.clock.boot_id, []).append(rates)
            seen.add(node.started.node_index)
    missing = [node.index for node in run.job.nodes if node.index not in seen]
    if missing:
        return absent("not_measured", "host.cores_not_sampled", nodes=named("node", missing))
    shares = {boot_id: _share(nodes) for boot_id, nodes in machines.items()}
    return Found(max(shares.values()), {"cores": max(rates.cores for nodes in machines.values() for rates in nodes)})


def is_busy_host(run: Observed) -> bool:
    """Only applies if the devices are CPU cores."""
    finding = cpu_others(run)
    return run.job.memory_scope == "host" and isinstance(finding, Found) and finding.value > BUSY_SHARE


def _rates(samples: Sequence[tuple[int, CpuUse]]) -> _Rates | None:
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return None
    (began_ns, first), (ended_ns, last) = samples[0], samples[-1]
    seconds = (ended_ns - began_ns) / SECOND_NS
    return _Rates(
        cores=last.cores,
        all_busy=(last.all_seconds - first.all_seconds) / seconds,
        own_busy=(last.own_seconds - first.own_seconds) / seconds,
    )


def _share(nodes: Sequence[_Rates]) -> float:
    """Process times and core times are read at different moments, so a negative difference is clamped to 0."""
    all_busy = sum(node.all_busy for node in nodes) / len(nodes)
    own_busy = sum(node.own_busy for node in nodes)
    return min(1.0, max(0.0, all_busy - own_busy) / max(node.cores for node in nodes))


def probe_cost(run: Observed) -> Finding:
    costs: dict[str, float] = {}
    for node in run.nodes:
        if node.started is None or node.ended is None:
            continue
        index, ended = node.started.node_index, node.ended
        if ended.wall_seconds <= 0 or ended.cpu_seconds < 0:
            nodes = named("node", [index])
            return absent("invalid_telemetry", "host.probe_time", nodes=nodes, seconds=ended.wall_seconds)
        costs[str(index)] = ended.cpu_seconds / ended.wall_seconds
    missing = [node.index for node in run.job.nodes if str(node.index) not in costs]
    if missing:
        return absent("not_measured", "host.probe_without_end", nodes=named("node", missing))
    return Found(max(costs.values()), {"per_node": costs})


HOST_LOAD = (
    MetricEntry(
        name="probe_cost",
        unit="share",
        group="host",
        scope="job",
        formula=probe_cost,
        format=units.percent,
        title={"en": "Cost of the probe", "zh": "探针开销"},
        remark={"en": "share of one core", "zh": "占一个核心的比例"},
    ),
    MetricEntry(
        name="cpu_others",
        unit="share",
        group="host",
        scope="job",
        formula=cpu_others,
        format=units.percent,
        title={"en": "Cores used by others", "zh": "其他进程的核心占用"},
        remark={"en": "share of all cores while the workers ran", "zh": "工作进程运行期间占全部核心的比例"},
    ),
)
