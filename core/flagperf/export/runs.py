"""One line for each run: what it is, how it was configured, how it ended, and every metric, unrounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from flagperf.export.columns import Column, Type
from flagperf.export.recorded import Exported
from flagperf.metrics import Metric
from flagperf.metrics.registry import ENTRIES
from flagperf.report.sections.naming import is_published, vendor_word
from flagperf.spec import flatten

FACTS = ("machine", "cpu", "network", "os", "kernel", "container", "driver", "framework", "python", "commit")
"""Of the first node."""


def _job(name: str, kind: Type, field: str = "") -> Column:
    return Column(name, kind, lambda each: getattr(each.run.job, field or name))


def _fact(name: str) -> Column:
    def value(each: Exported) -> str | None:
        facts = each.recorded.nodes[0].environment.facts if each.recorded.nodes else {}
        return facts[name].value if name in facts else None

    return Column(f"environment.{name}", "text", value)


COLUMNS: tuple[Column, ...] = (
    Column("run", "text", lambda each: each.run.id),
    Column("created", "text", lambda each: each.run.created),
    Column("status", "text", lambda each: each.run.ending.status if each.run.ending else None),
    Column("reason", "text", lambda each: each.run.ending.reason if each.run.ending else None),
    Column("simulated", "truth", lambda each: each.run.simulated),
    Column("redacted", "truth", lambda each: each.run.redacted),
    _job("case", "text"),
    _job("case_version", "integer"),
    _job("kind", "text"),
    _job("profile", "text"),
    Column("published", "truth", lambda each: is_published(each.run)),
    Column("vendor", "text", lambda each: vendor_word(each.run)),
    _job("adapter", "text"),
    Column("device", "text", lambda each: each.run.job.device_model.model),
    Column("device_memory_bytes", "integer", lambda each: each.run.job.device_model.memory_bytes),
    Column("nodes", "integer", lambda each: len(each.run.job.nodes)),
    _job("devices_per_node", "integer"),
    _job("devices", "integer", "world_size"),
    _job("shape", "text"),
    Column("precision", "text", lambda each: each.run.job.precision.name),
    _job("batch_size", "integer"),
    Column("overrides", "text", lambda each: _json(_overrides(each))),
    Column("values", "text", lambda each: _json(dict(flatten(each.run.job.config.values)))),
    Column("model", "text", lambda each: each.run.manifest.model),
    Column("dataset", "text", lambda each: each.run.manifest.dataset),
    Column("hosts", "text", lambda each: " ".join(node.host for node in each.run.job.nodes)),
    Column("flagperf_version", "text", lambda each: each.run.flagperf_version),
    *map(_fact, FACTS),
    Column("tags", "text", lambda each: " ".join(each.labels.tags)),
    Column("note", "text", lambda each: each.labels.note),
    Column("manifest_sha256", "text", lambda each: each.manifest_sha256),
    Column("path", "text", lambda each: each.recorded.path),
)


def run_lines(runs: Iterable[Exported]) -> Iterator[dict[str, Any]]:
    for each in runs:
        line = {column.name: column.value(each) for column in COLUMNS}
        for metric in each.run.metrics:
            line |= metric_cells(metric)
        yield {name: value for name, value in line.items() if value not in (None, "")}


METRIC_CELLS: dict[str, Type] = {
    "": "real",
    ".unit": "text",
    ".reason": "text",
    ".detail": "text",
    ".marks": "text",
    ".low": "real",
    ".high": "real",
}
"""What follows the name of a metric in the names of its columns."""


def metric_cells(metric: Metric) -> dict[str, Any]:
    interval = metric.interval
    cells = (
        metric.value,
        metric.unit,
        metric.reason,
        metric.detail,
        " ".join(metric.marks),
        interval.low if interval else None,
        interval.high if interval else None,
    )
    return {f"{metric.name}{end}": cell for end, cell in zip(METRIC_CELLS, cells, strict=True)}


def run_columns(lines: Iterable[Mapping[str, Any]]) -> dict[str, Type]:
    """The same for all exports, but for the metrics that only the cases of these lines have, which come last."""
    known = {**{column.name: column.kind for column in COLUMNS}, **_metric_columns(ENTRIES)}
    others = {_metric_of(name) for line in lines for name in line if name not in known}
    return {**known, **_metric_columns(sorted(others))}


def _metric_columns(names: Iterable[str]) -> dict[str, Type]:
    return {f"{name}{end}": kind for name in names for end, kind in METRIC_CELLS.items()}


def _metric_of(column: str) -> str:
    return next((column.removesuffix(end) for end in METRIC_CELLS if end and column.endswith(end)), column)


def _overrides(each: Exported) -> dict[str, Any]:
    values = dict(flatten(each.run.job.config.values))
    return {key: values[key] for key in each.run.job.config.deviations}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value else ""
