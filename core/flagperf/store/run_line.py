"""RunLine: a run among many. Only a few fields of its run.json are decoded."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.files import exists
from flagperf.kinds import KINDS
from flagperf.store.alive import parent_of
from flagperf.store.bundle import read_json, schema_problem
from flagperf.store.labels import Labels, read_labels
from flagperf.store.paths import MANIFEST_FILE, RUN_FILE
from flagperf.store.run import EXIT_CODES, WITH_RESULTS, Ending, unfinished

UNREADABLE = "unreadable"

STATUSES = (*EXIT_CODES, "running", "killed", "unknown", UNREADABLE)
"""All that a line may have."""


class Headline(msgspec.Struct, frozen=True):
    """A main result of a run. Marks are caveats, as everywhere."""

    name: str
    value: float | int
    unit: str
    marks: tuple[str, ...] = ()


class RunLine(msgspec.Struct, frozen=True):
    """One line of `flagperf runs list`."""

    id: str
    created: str = ""
    case: str = ""
    vendor: str = ""
    device: str = ""
    shape: str = ""
    profile: str = ""
    precision: str = ""
    headline: tuple[Headline, ...] = ()
    """Of a run that has results, the most important one first."""
    status: str = UNREADABLE
    host: str = ""
    """Where the command of an unfinished run runs or ran."""
    simulated: bool = False
    redacted: bool = False
    """It is a copy that `runs redact` made."""
    tags: tuple[str, ...] = ()
    note: str = ""
    problem: str = ""
    """Why it, or its tags and note, cannot be read."""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Device(msgspec.Struct, frozen=True):
    short_name: str


class _Node(msgspec.Struct, frozen=True):
    devices: tuple[_Device, ...]


class _Job(msgspec.Struct, frozen=True):
    case: str
    vendor: str
    profile: str
    precision: _Named
    nodes: tuple[_Node, ...]


class _Figure(msgspec.Struct, frozen=True):
    name: str
    headline: bool = False


class _Page(msgspec.Struct, frozen=True):
    columns: tuple[str, ...] = ()


class _Manifest(msgspec.Struct, frozen=True):
    kind: str
    page: _Page
    figures: tuple[_Figure, ...] = ()


class _Metric(msgspec.Struct, frozen=True):
    name: str
    unit: str
    value: float | int | None = None
    marks: tuple[str, ...] = ()


class _Run(msgspec.Struct, frozen=True):
    id: str
    created: str
    job: _Job
    manifest: _Manifest
    schema: object = None
    metric_versions: dict[str, int] | None = None
    ending: Ending | None = None
    metrics: tuple[_Metric, ...] = ()
    simulated: bool = False
    redacted: bool = False


def run_line(path: Path) -> RunLine:
    """Of a bundle. What cannot be read says so."""
    labels, problem = _labels(path)
    try:
        run: _Run = read_json(path / RUN_FILE, _Run)
        unread = schema_problem(run.schema, run.metric_versions is not None)
        if unread:
            raise BadInput(f"{path / RUN_FILE} {unread}")
    except BadInput as error:
        return RunLine(path.name, tags=labels.tags, note=labels.note, problem=str(error))
    status, host = _status(path, run)
    devices = run.job.nodes[0].devices if run.job.nodes else ()
    return RunLine(
        id=run.id,
        created=run.created,
        case=run.job.case,
        vendor=run.job.vendor,
        device=devices[0].short_name if devices else "",
        shape=f"{len(run.job.nodes)}x{len(devices)}",
        profile=run.job.profile,
        precision=run.job.precision.name,
        headline=tuple(_headline(run)) if status in WITH_RESULTS else (),
        status=status,
        host=host,
        simulated=run.simulated,
        redacted=run.redacted,
        tags=labels.tags,
        note=labels.note,
        problem=problem,
    )


def _status(path: Path, run: _Run) -> tuple[str, str]:
    if run.ending is not None:
        return run.ending.status, ""
    return (UNREADABLE, "") if exists(path / MANIFEST_FILE) else unfinished(parent_of(path))


def _labels(path: Path) -> tuple[Labels, str]:
    try:
        return read_labels(path), ""
    except BadInput as error:
        return Labels(), str(error)


def _headline(run: _Run) -> list[Headline]:
    """The case's own figures that are main results, else those of its kind; of these, the ones that its page has."""
    kind = KINDS.get(run.manifest.kind)
    names = [figure.name for figure in run.manifest.figures if figure.headline] or list(kind.headline if kind else ())
    names = [name for name in names if name in run.manifest.page.columns] or names
    found = {metric.name: metric for metric in run.metrics}
    return [
        Headline(name, metric.value, metric.unit, metric.marks)
        for name in names
        if (metric := found.get(name)) is not None and metric.value is not None
    ]
