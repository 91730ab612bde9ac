"""Board: all rows of a site, coded by column, as the page carries them. Of 10,000 runs of a lab, most values repeat:
a column is its different values, and for each row the number of one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.compare.conditions import conditions, identity
from flagperf.compare.sides import Side
from flagperf.messages import Lang, choose, usable, words
from flagperf.metrics.registry import entry_of, headline_names, main_entries
from flagperf.report.document import Link, Value
from flagperf.report.sections.published_tables import link_to
from flagperf.report.summary import identity_of
from flagperf.report.wording import has_published_profile, measured_cell
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import Grade, PublishedResult
from flagperf.text import one_line
from flagperf_publish.render.html_cells import is_web_address

# Row: a run, or a published result, as one line of the board. It has all that the page shows of it, in words.


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
    run, ending, about = recorded.run, recorded.run.ending, identity_of(recorded.run, lang)
    row = Row(
        name=about.run,
        case=about.case,
        vendor=about.vendor,
        card=about.card,
        shape=about.shape,
        precision=about.precision,
        profile=about.profile,
        status=ending.status if ending else "none",
        grade="logged" if problems else "recomputable",
        created=about.created,
        changes=about.changes,
        labels=tuple(_labels(run, problems)),
        reason=words(usable(ending.message, ending.reason), lang) if ending else "",
        problem=problems[0] if problems else "",
        tags=" ".join(recorded.labels.tags),
        note=recorded.labels.note,
        is_published=has_published_profile(run),
        figures=dict(_figures(run)) if run.has_results else {},
        identity={"case": about.case, **identity(run), **_data_files(run)},
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


PLAIN = tuple(name for name in Row.__struct_fields__ if name not in ("case", "labels", "figures", "identity", "setup"))
"""Fields of a row that are a column each."""

BY_NAME = ("figures", "identity", "setup")
"""Fields with a column for each name in them."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    of: list[Any]
    """Its different values. None where a row has none."""
    at: list[int] = []
    """For each row, the number of its value. Empty if all are the first."""


class Metric(msgspec.Struct, frozen=True):
    name: str
    title: str
    unit: str
    better: int
    """1 if the higher value is better, -1 if the lower one is, 0 if neither."""
    is_headline: bool


class CaseRows(msgspec.Struct, frozen=True):
    name: str
    title: str
    size: int
    metrics: list[Metric]
    """Those that a row has a value of, the main results first."""
    plain: dict[str, Column]
    figures: dict[str, Column]
    identity: dict[str, Column]
    setup: dict[str, Column]


def board(rows: Iterable[Row], manifests: Mapping[str, Manifest], lang: Lang) -> list[CaseRows]:
    """By case, in the order of their names. `manifests` has every case of the rows."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    return [_case_rows(of_case, manifests[name], lang) for name, of_case in sorted(by_case.items())]


def _case_rows(rows: Sequence[Row], manifest: Manifest, lang: Lang) -> CaseRows:
    plain = {name: column([getattr(row, name) for row in rows]) for name in PLAIN}
    plain["labels"] = column([" ".join(row.labels) for row in rows])
    named = {name: _columns([getattr(row, name) for row in rows]) for name in BY_NAME}
    valued = dict.fromkeys(name for row in rows for name, figure in row.figures.items() if figure.value is not None)
    title = one_line(choose(manifest.title, lang))
    return CaseRows(rows[0].case, title, len(rows), _metrics(valued, manifest, lang), plain, **named)


def _columns(rows: Sequence[Mapping[str, Hashable]]) -> dict[str, Column]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column([row.get(name) for row in rows]) for name in names}


def column(values: Sequence[Hashable]) -> Column:
    numbers: dict[Hashable, int] = {}
    at = [numbers.setdefault(value, len(numbers)) for value in values]
    return Column(list(numbers), at if len(numbers) > 1 else [])


def _metrics(names: Iterable[str], manifest: Manifest, lang: Lang) -> list[Metric]:
    """In the order of a comparison; what only other versions of the case have comes last."""
    main = [entry.name for entry in main_entries(manifest)]
    ordered = sorted(names, key=lambda name: main.index(name) if name in main else len(main))
    return [_metric(name, manifest, lang) for name in ordered]


_BETTER = {"faster": 1, "higher": 1, "quicker": -1, "lower": -1}


def _metric(name: str, manifest: Manifest, lang: Lang) -> Metric:
    entry = entry_of(manifest, name)
    if entry is None:
        return Metric(one_line(name), one_line(name), "", 0, is_headline=False)
    unit = entry.shown_unit or entry.unit_of(manifest)
    title = choose(manifest.page.titles.get(name, {}), lang) or choose(entry.title, lang)
    return Metric(
        name=one_line(name),
        title=one_line(title),
        unit="" if unit in ("share", "fraction") else one_line(unit),
        better=_BETTER.get(entry.better or "", 0),
        is_headline=name in headline_names(manifest.kind, manifest.figures),
    )
