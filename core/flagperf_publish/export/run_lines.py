"""Runs as CSV, JSON lines, Parquet."""

from __future__ import annotations

import hashlib
import importlib
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from flagperf.bundle.bundle import MAX_JSON_BYTES, read_record
from flagperf.bundle.paths import MANIFEST_FILE
from flagperf.bundle.run_record import Labels, RecordedRun, Run
from flagperf.errors import MissingPart
from flagperf.files import read_regular
from flagperf.kinds import KINDS
from flagperf.metrics.alignment import curve_point
from flagperf.metrics.entry import Absent, Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import ENTRIES
from flagperf.plausibility.doubts import read_marked
from flagperf.report.run_json import EXPORT_SCHEMA, exported_run
from flagperf.report.wording import is_published, vendor_word
from flagperf.spec.values import flatten
from flagperf.text import pip_command, safe_json
from flagperf.units import SECOND_NS
from flagperf_publish.export.data_files import csv_text, harmless

# The runs to export. All of them are read here.


class Exported(msgspec.Struct, frozen=True):
    recorded: RecordedRun
    manifest_sha256: str
    """Of its MANIFEST: what it is, byte by byte. Empty for a run that is not finished."""

    @property
    def run(self) -> Run:
        return self.recorded.run

    @property
    def is_finished(self) -> bool:
        return bool(self.manifest_sha256) and self.run.ending is not None

    @property
    def labels(self) -> Labels:
        return self.recorded.labels

    @property
    def path(self) -> Path:
        return Path(self.recorded.path)

    def observed(self) -> Observed:
        """Read its raw files."""
        return Observed(self.run.job, self.run.manifest, read_record(self.path))


def read_exported(path: Path) -> Exported:
    """Raise BadInput for a bundle that cannot be read."""
    (recorded,) = read_marked([path])
    try:
        manifest_sha256 = hashlib.sha256(read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES)).hexdigest()
    except FileNotFoundError:
        manifest_sha256 = ""
    return Exported(recorded, manifest_sha256)


Type = Literal["text", "integer", "real", "truth"]


class ExportColumn(msgspec.Struct, frozen=True):
    """A column of the table of runs: what it holds, and where it comes from."""

    name: str
    kind: Type
    value: Callable[[Exported], Any]
    """Its cell, None if it has none."""


# One line for each run: what it is, how it was configured, how it ended, and every metric, unrounded.


FACTS = ("machine", "cpu", "network", "os", "kernel", "container", "driver", "framework", "python", "commit")
"""Of the first node."""


def _job(name: str, kind: Type, field: str = "") -> ExportColumn:
    return ExportColumn(name, kind, lambda each: getattr(each.run.job, field or name))


def _fact(name: str) -> ExportColumn:
    def value(each: Exported) -> str | None:
        facts = each.recorded.nodes[0].environment.facts if each.recorded.nodes else {}
        return facts[name].value if name in facts else None

    return ExportColumn(f"environment.{name}", "text", value)


def _values(each: Exported, only: Container[str] | None = None) -> str:
    """Return values as JSON, all of them or `only` those with these keys; empty if there are none."""
    found = {key: value for key, value in flatten(each.run.job.config.values) if only is None or key in only}
    return msgspec.json.encode(found).decode() if found else ""


COLUMNS: tuple[ExportColumn, ...] = (
    ExportColumn("run", "text", lambda each: each.run.id),
    ExportColumn("created", "text", lambda each: each.run.created),
    ExportColumn("status", "text", lambda each: each.run.ending.status if each.run.ending else None),
    ExportColumn("reason", "text", lambda each: each.run.ending.reason if each.run.ending else None),
    ExportColumn("simulated", "truth", lambda each: each.run.simulated),
    ExportColumn("redacted", "truth", lambda each: each.run.redacted),
    _job("case", "text"),
    _job("case_version", "integer"),
    _job("kind", "text"),
    _job("profile", "text"),
    ExportColumn("published", "truth", lambda each: is_published(each.run)),
    ExportColumn("vendor", "text", lambda each: vendor_word(each.run)),
    _job("adapter", "text"),
    ExportColumn("device", "text", lambda each: each.run.job.device_model.model),
    ExportColumn("device_memory_bytes", "integer", lambda each: each.run.job.device_model.memory_bytes),
    ExportColumn("nodes", "integer", lambda each: len(each.run.job.nodes)),
    _job("devices_per_node", "integer"),
    _job("devices", "integer", "world_size"),
    _job("shape", "text"),
    ExportColumn("precision", "text", lambda each: each.run.job.precision.name),
    _job("batch_size", "integer"),
    ExportColumn("overrides", "text", lambda each: _values(each, each.run.job.config.deviations)),
    ExportColumn("values", "text", _values),
    ExportColumn("model", "text", lambda each: each.run.manifest.model),
    ExportColumn("dataset", "text", lambda each: each.run.manifest.dataset),
    ExportColumn("hosts", "text", lambda each: " ".join(node.host for node in each.run.job.nodes)),
    ExportColumn("flagperf_version", "text", lambda each: each.run.flagperf_version),
    *map(_fact, FACTS),
    ExportColumn("tags", "text", lambda each: " ".join(each.labels.tags)),
    ExportColumn("note", "text", lambda each: each.labels.note),
    ExportColumn("manifest_sha256", "text", lambda each: each.manifest_sha256),
    ExportColumn("path", "text", lambda each: each.recorded.path),
)


def run_lines(runs: Iterable[Exported]) -> Iterator[dict[str, Any]]:
    for each in runs:
        line = {column.name: column.value(each) for column in COLUMNS}
        for metric in each.run.metrics:
            line |= metric_cells(metric)
        yield {name: value for name, value in line.items() if value not in (None, "")}


def whole_run(each: Exported) -> dict[str, Any]:
    """Return all of a run, for a line of JSON."""
    labels = {"tags": each.labels.tags, "note": each.labels.note}
    own = {"manifest_sha256": each.manifest_sha256, "path": each.recorded.path}
    return {"schema": EXPORT_SCHEMA, **exported_run(each.recorded), **labels, **own}


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
    """Return the columns, which all exports share. Metrics that only the cases of these lines have come last."""
    known = {**{column.name: column.kind for column in COLUMNS}, **_metric_columns(ENTRIES)}
    unknown = {name for line in lines for name in line if name not in known}
    ends = [end for end in METRIC_CELLS if end]
    others = {next((name.removesuffix(end) for end in ends if name.endswith(end)), name) for name in unknown}
    return {**known, **_metric_columns(sorted(others))}


def _metric_columns(names: Iterable[str]) -> dict[str, Type]:
    return {f"{name}{end}": kind for name in names for end, kind in METRIC_CELLS.items()}


# One line for each step of a run: its loss over all ranks, and the times of its slowest rank.


CURVE_COLUMNS: dict[str, Type] = {
    "run": "text",
    "case": "text",
    "vendor": "text",
    "device": "text",
    "shape": "text",
    "precision": "text",
    "step": "integer",
    "warmup": "truth",
    "loss": "real",
    "samples": "integer",
    "compute_seconds": "real",
    "period_seconds": "real",
    "remark": "text",
}
"""Times are those of steps after warm-up: `compute_seconds` as in step_time_p50, `period_seconds` from the end of the
step before to the end of this one, without evaluation and logging."""


def curve_lines(each: Exported) -> Iterator[dict[str, Any]]:
    """Yield nothing for a run without steps, or one whose steps cannot be used: `no_curve` says why."""
    observed = each.observed()
    steps, window, run = observed.steps, observed.window, each.run
    if isinstance(steps, Absent):
        return
    computes_ns, periods_ns = ((), ()) if isinstance(window, Absent) else (window.compute_ns, window.period_ns)
    job = run.job
    head = {
        "run": run.id,
        "case": job.case,
        "vendor": vendor_word(run),
        "device": job.device_model.model,
        "shape": job.shape,
        "precision": job.precision.name,
    }
    for index in range(steps[0].num_steps):
        point, kept = curve_point(steps, index), index - steps[0].dropped
        is_timed = 0 <= kept < len(computes_ns)
        yield {
            **head,
            "step": point.step,
            "warmup": kept < 0,
            "loss": point.loss,
            "samples": point.samples,
            "compute_seconds": computes_ns[kept] / SECOND_NS if is_timed else None,
            "period_seconds": periods_ns[kept] / SECOND_NS if is_timed else None,
            "remark": point.remark if "losses" in observed.kind.metrics else "",
        }


def no_curve(each: Exported) -> str:
    """Say why a run has no lines. Return an empty text if it has some."""
    steps = each.observed().steps
    if isinstance(steps, Absent):
        return f"{steps.reason}, {steps.detail}"
    if steps[0].num_steps:
        return ""
    return "it made none" if KINDS[each.run.manifest.kind].has_steps else "its case measures rows"


# Lines as CSV, JSON lines and Parquet.


TABLE_SCHEMA = 1
"""Columns are added without a change of this number. Incremented when one is renamed or gets another meaning."""

ROWS_AT_ONCE = 20_000

Line = Mapping[str, Any]


def to_csv(columns: Mapping[str, Type], lines: Iterable[Line]) -> Iterator[str]:
    def cell(value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        return harmless(value) if isinstance(value, str) else value

    return csv_text(list(columns), ({name: cell(value) for name, value in line.items()} for line in lines))


def to_json_lines(lines: Iterable[Line]) -> Iterator[str]:
    return (f"{safe_json(msgspec.json.encode(line).decode())}\n" for line in lines)


def check_parquet() -> None:
    """Raise MissingPart without pyarrow."""
    _pyarrow()


def write_parquet(file: IO[bytes], columns: Mapping[str, Type], lines: Iterable[Line]) -> None:
    arrow, parquet = _pyarrow()
    types = {"text": arrow.string(), "integer": arrow.int64(), "real": arrow.float64(), "truth": arrow.bool_()}
    fields = [arrow.field(name, types[kind]) for name, kind in columns.items()]
    schema = arrow.schema(fields, metadata={"flagperf.table_schema": str(TABLE_SCHEMA)})
    left = iter(lines)
    with parquet.ParquetWriter(file, schema) as writer:
        while rows := list(itertools.islice(left, ROWS_AT_ONCE)):
            cells = {name: [row.get(name) for row in rows] for name in columns}
            for name in (name for name, kind in columns.items() if kind == "real"):
                cells[name] = [value if value is None else float(value) for value in cells[name]]
            writer.write_table(arrow.table(cells, schema=schema))


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingPart(f"Parquet needs pyarrow: `{pip_command('install', 'flagperf[parquet]')}`") from None
