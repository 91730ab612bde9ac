"""All that a new kind takes: one module, with the metric that only this kind has."""

from flagperf import units
from flagperf.kinds import KINDS, RESULTS, Kind
from flagperf.metrics.entry import Absent, Finding, Found, MetricEntry
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import ENTRIES

KINDS["copying"] = Kind(
    name="copying",
    values="copying",
    metrics=("job", "steps", "memory", "host", "copying"),
    headline=("copy_rate",),
    mfu_duration={"samples": "core", "tokens": "core"},
    mfu_formulas={},
    summary=("e2e_time", "copy_rate", "mem"),
    timed="copy_rate",
    sections=("subject", "environment", *RESULTS),
    loop={"en": "copying", "zh": "复制"},
    step="copy",
    words={"results": {"en": "How fast memory is copied", "zh": "内存复制速度"}},
)


def copy_rate(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    num_bytes = sum(run.window.per_step("bytes"))
    return Found(num_bytes / max(run.window.core_ns), {"timing": run.window.timing})


ENTRIES["copy_rate"] = MetricEntry(
    name="copy_rate",
    unit="GB/s",
    scope="system",
    group="copying",
    formula=copy_rate,
    format=units.per_second,
    title={"en": "Copy rate", "zh": "复制速率"},
    remark={"en": "bytes copied over the time of copying", "zh": "复制的字节数÷复制时间"},
)
