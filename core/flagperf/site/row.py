"""Row: a run, or a published result, as one line of the board. It has all that the page shows of it, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from flagperf.compare import Side, main_entries
from flagperf.compare.conditions import conditions
from flagperf.compare.obstacles import identity
from flagperf.escapes import one_line
from flagperf.messages import Lang, usable, words
from flagperf.report.document import Link, Value
from flagperf.report.render.html_cells import is_web_address
from flagperf.report.sections.cells import measured_cell
from flagperf.report.sections.naming import has_published_profile, overrides, vendor_word
from flagperf.report.sections.published import link_to
from flagperf.spec import Manifest, PublishedResult
from flagperf.spec.published import Grade
from flagperf.store.run import RecordedRun, Run

T = TypeVar("T")

PUBLISHED = "published"
"""The status of a published result. Its name begins with it too, as `flagperf compare` wants it."""


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """A metric of a row."""

    text: str
    value: float | None = None
    """In the unit of the metric, with six digits."""
    marks: str = ""
    """Caveats as codes, separated by spaces."""
    reason: str = ""
    """Why there is no value, as a code."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """The id of a run, or `published:NAME`."""
    case: str
    vendor: str
    card: str
    shape: str
    precision: str
    profile: str
    status: str
    """How it ended."""
    grade: Grade
    created: str = ""
    changes: str = ""
    """What differs from the profile."""
    labels: tuple[str, ...] = ()
    """simulated, redacted, unverified."""
    reason: str = ""
    """Why it ended so."""
    problem: str = ""
    """What the verification of its bundle found first."""
    tags: str = ""
    note: str = ""
    source: str = ""
    """Of a published result; `link` is its address on the web, if it has one."""
    link: str = ""
    is_published: bool = False
    """Published results can be compared with it: it is one, or has their profile."""
    figures: dict[str, Figure] = {}
    identity: dict[str, str] = {}
    """What decides the work: rows that differ in it cannot be compared."""
    setup: dict[str, str] = {}
    """`subject/name` -> what may explain a difference."""


def run_row(recorded: RecordedRun, problems: tuple[str, ...], lang: Lang) -> Row:
    """`problems` are those that `runs verify` finds."""
    run, job = recorded.run, recorded.run.job
    ending = run.ending
    row = Row(
        name=run.id,
        case=job.case,
        vendor=vendor_word(run),
        card=job.device_model.short_name,
        shape=job.shape,
        precision=job.precision.name,
        profile=job.profile,
        status=ending.status if ending else "none",
        grade="logged" if problems else "recomputable",
        created=run.created,
        changes=overrides(run),
        labels=tuple(_labels(run, problems)),
        reason=words(usable(ending.message, ending.reason), lang) if ending else "",
        problem=problems[0] if problems else "",
        tags=" ".join(recorded.labels.tags),
        note=recorded.labels.note,
        is_published=has_published_profile(run),
        figures=dict(_figures(run)) if run.has_results else {},
        identity={"case": job.case, **identity(run), **_data_files(run)},
        setup={"/".join(name): text for name, text in conditions(Side("", "", (recorded,))).items()},
    )
    return _shown(row, Row)


def published_row(name: str, reference: PublishedResult, manifest: Manifest) -> Row:
    source = link_to(reference.source, reference.source)
    where = f"{reference.source}:{reference.line}" if reference.line else reference.source
    shape = f"{reference.nodes}x{reference.devices_per_node}"
    profiles = [profile for profile, each in manifest.profiles.items() if each.published]
    changes = "" if reference.overrides in ("", "/", "none", "per-row") else reference.overrides
    row = Row(
        name=f"{PUBLISHED}:{name}",
        case=manifest.name,
        vendor=reference.vendor,
        card=reference.device,
        shape=shape,
        precision=reference.precision,
        profile=profiles[0] if profiles else "",
        status=PUBLISHED,
        grade=reference.grade,
        changes=", ".join(filter(None, (reference.parallel, reference.engine, changes))),
        source=where,
        link=source.url if isinstance(source, Link) and is_web_address(source.url) else "",
        is_published=True,
        figures=dict(_published_figures(reference, manifest)),
        identity={"case": manifest.name},
        setup={
            "hardware/vendor": reference.vendor,
            "hardware/device": reference.device,
            "hardware/shape": shape,
            "precision/precision": reference.precision,
        },
    )
    return _shown(row, Row)


def _labels(run: Run, problems: tuple[str, ...]) -> Iterator[str]:
    if run.simulated:
        yield "simulated"
    if run.redacted:
        yield "redacted"
    if problems:
        yield "unverified"


def _figures(run: Run) -> Iterator[tuple[str, Figure]]:
    """What does not apply to a case, or was not planned, is left out; what is missing has its reason."""
    for entry in main_entries(run.manifest):
        metric = run.metric(entry.name)
        if metric is None or metric.reason == "not_applicable":
            continue
        cell = measured_cell(run, entry.name, entry.format)
        if isinstance(cell, Value) and metric.value is not None:
            yield entry.name, Figure(cell.text, _digits(metric.value), " ".join(cell.marks))
        else:
            yield entry.name, Figure("", reason=metric.reason or "not_measured")


def _published_figures(reference: PublishedResult, manifest: Manifest) -> Iterator[tuple[str, Figure]]:
    for entry in main_entries(manifest):
        value = reference.values.get(entry.name)
        if value is not None:
            yield entry.name, Figure(entry.format(value), _digits(value))


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _data_files(run: Run) -> dict[str, str]:
    """Their hash, of a run that recorded some."""
    files = sorted((file.path, file.sha256) for file in run.job.data_files)
    return {"files": hashlib.sha256(repr(files).encode()).hexdigest()[:12]} if files else {}


def _shown(value: T, kind: type[T]) -> T:
    """Every text in it on one line, without characters that control the reading order."""
    return msgspec.convert(_clean(msgspec.to_builtins(value)), kind)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {one_line(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value
