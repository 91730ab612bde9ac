"""What other processes took of the cores while the workers ran."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.events import CpuUse, EventFile, Sampled
from flagperf.metrics.finding import Absent, Finding, Found, named
from flagperf.metrics.ranks import of
from flagperf.metrics.samples import probe_files
from flagperf.metrics.throughput import SECOND_NS
from flagperf.spec import Job

BUSY_SHARE = 0.10
"""Others above this slow CPU workers down by more than runs differ by themselves."""


class _Rates(msgspec.Struct, frozen=True):
    """Cores kept busy on average: by all processes, and by one node's own."""

    cores: int
    all_busy: float
    own_busy: float


def others_share(job: Job, files: Sequence[EventFile]) -> Finding:
    """The busiest machine's. Nodes that are one machine are each other's own, not others."""
    machines: dict[str, list[_Rates]] = {}
    seen: set[int] = set()
    for started, file in probe_files(files):
        rates = _rates([(sample.t_ns, sample.cpu) for sample in of(file.events, Sampled) if sample.cpu is not None])
        if rates is not None:
            machines.setdefault(started.clock.boot_id, []).append(rates)
            seen.add(started.node_index)
    missing = [node.index for node in job.nodes if node.index not in seen]
    if missing:
        return Absent("not_measured", f"the use of the cores was not sampled twice on {named('node', missing)}")
    shares = {boot_id: _share(nodes) for boot_id, nodes in machines.items()}
    return Found(max(shares.values()), {"cores": max(rates.cores for nodes in machines.values() for rates in nodes)})


def is_busy_host(job: Job, finding: Finding) -> bool:
    """Where the cores are the devices."""
    return job.memory_scope == "host" and isinstance(finding, Found) and finding.value > BUSY_SHARE


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
    """Process times and the cores' are counted at different moments: a difference below 0 is 0."""
    all_busy = sum(node.all_busy for node in nodes) / len(nodes)
    own_busy = sum(node.own_busy for node in nodes)
    return min(1.0, max(0.0, all_busy - own_busy) / max(node.cores for node in nodes))
