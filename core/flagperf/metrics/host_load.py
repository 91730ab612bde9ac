"""CPU load of the host besides the workers: other processes, and the probe itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf import units
from flagperf.events import CpuUse
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.finding import Finding, Found, absent, named
from flagperf.metrics.observed import Observed
from flagperf.units import SECOND_NS

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


METRICS = (
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
