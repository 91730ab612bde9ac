"""Board: all rows of a site, coded by column, as the page carries them. Of 10,000 runs of a lab, most values repeat:
a column is its different values, and for each row the number of one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flagperf.bundle.run_record import RecordedRun
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

PUBLISHED = "published"
"""The status of a published result. Its name begins with it too, as `flagperf compare` wants it."""


class BoardFigure(msgspec.Struct, frozen=True, array_like=True):
    """A metric of a row."""

    text: str
    value: float | None = None
    """In the unit of the metric, with six digits."""
    marks: str = ""
    """Caveats as codes, separated by spaces."""
    reason: str = ""
    """Why there is no value, as a code."""


class BoardRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run or a published result as one line of the board: all that the page shows of it, in words."""

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
    figures: dict[str, BoardFigure] = {}
    identity: dict[str, str] = {}
    """What decides the work: rows that differ in it cannot be compared."""
    setup: dict[str, str] = {}
    """`subject/name` -> what may explain a difference."""


def run_row(recorded: RecordedRun, problems: tuple[str, ...], lang: Lang) -> BoardRow:
    """`problems` are those that `runs verify` finds."""
    run, ending, about = recorded.run, recorded.run.ending, identity_of(recorded.run, lang)
    labels = {"simulated": run.simulated, "redacted": run.redacted, "unverified": bool(problems)}
    files = sorted((file.path, file.sha256) for file in run.job.data_files)
    data = {"files": hashlib.sha256(repr(files).encode()).hexdigest()[:12]} if files else {}
    figures = {}
    for entry in main_entries(run.manifest) if run.has_results else ():
        metric = run.metric(entry.name)
        if metric is None or metric.reason == "not_applicable":
            continue  # what does not apply, or was not planned, is left out; what is missing has its reason
        cell = measured_cell(run, entry.name, entry.format)
        if isinstance(cell, Value) and metric.value is not None:
            figures[entry.name] = BoardFigure(cell.text, _digits(metric.value), " ".join(cell.marks))
        else:
            figures[entry.name] = BoardFigure("", reason=metric.reason or "not_measured")
    row = BoardRow(
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
        labels=tuple(name for name, holds in labels.items() if holds),
        reason=words(usable(ending.message, ending.reason), lang) if ending else "",
        problem=problems[0] if problems else "",
        tags=" ".join(recorded.labels.tags),
        note=recorded.labels.note,
        is_published=has_published_profile(run),
        figures=figures,
        identity={"case": about.case, **identity(run), **data},
        setup={"/".join(name): text for name, text in conditions(Side("", "", (recorded,))).items()},
    )
    return _shown(row)


def published_row(name: str, reference: PublishedResult, manifest: Manifest) -> BoardRow:
    source = link_to(reference.source, reference.source)
    where = f"{reference.source}:{reference.line}" if reference.line else reference.source
    shape = f"{reference.nodes}x{reference.devices_per_node}"
    profiles = [profile for profile, each in manifest.profiles.items() if each.published]
    changes = "" if reference.overrides in ("", "/", "none", "per-row") else reference.overrides
    row = BoardRow(
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
        figures={
            entry.name: BoardFigure(entry.format(value), _digits(value))
            for entry in main_entries(manifest)
            if (value := reference.values.get(entry.name)) is not None
        },
        identity={"case": manifest.name},
        setup={
            "hardware/vendor": reference.vendor,
            "hardware/device": reference.device,
            "hardware/shape": shape,
            "precision/precision": reference.precision,
        },
    )
    return _shown(row)


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _shown(row: BoardRow) -> BoardRow:
    """Return the row with every text on one line, without characters that control the reading order."""
    return msgspec.convert(_clean(msgspec.to_builtins(row)), BoardRow)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {one_line(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value


PLAIN = tuple(
    name for name in BoardRow.__struct_fields__ if name not in ("case", "labels", "figures", "identity", "setup")
)
"""Fields of a row that are a column each."""

BY_NAME = ("figures", "identity", "setup")
"""Fields with a column for each name in them."""


class CodedColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    of: list[Any]
    """Its different values. None where a row has none."""
    at: list[int] = []
    """For each row, the number of its value. Empty if all are the first."""


class BoardMetric(msgspec.Struct, frozen=True):
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
    metrics: list[BoardMetric]
    """Those that a row has a value of, the main results first."""
    plain: dict[str, CodedColumn]
    figures: dict[str, CodedColumn]
    identity: dict[str, CodedColumn]
    setup: dict[str, CodedColumn]


def board(rows: Iterable[BoardRow], manifests: Mapping[str, Manifest], lang: Lang) -> list[CaseRows]:
    """Return the rows by case, in the order of the names. `manifests` has every case of the rows."""
    by_case: dict[str, list[BoardRow]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    found = []
    for case, of_case in sorted(by_case.items()):
        manifest = manifests[case]
        plain = {name: column([getattr(row, name) for row in of_case]) for name in PLAIN}
        plain["labels"] = column([" ".join(row.labels) for row in of_case])
        named = {}
        for field in BY_NAME:
            of_field = [getattr(row, field) for row in of_case]
            names = dict.fromkeys(name for each in of_field for name in each)
            named[field] = {name: column([each.get(name) for each in of_field]) for name in names}
        figures = [(name, figure) for row in of_case for name, figure in row.figures.items()]
        main = [entry.name for entry in main_entries(manifest)]
        valued = dict.fromkeys(name for name, figure in figures if figure.value is not None)
        # in the order of a comparison; what only other versions of the case have comes last
        ordered = sorted(valued, key=lambda name: main.index(name) if name in main else len(main))
        metrics = [_metric(name, manifest, lang) for name in ordered]
        found.append(CaseRows(case, one_line(choose(manifest.title, lang)), len(of_case), metrics, plain, **named))
    return found


def column(values: Sequence[Hashable]) -> CodedColumn:
    numbers: dict[Hashable, int] = {}
    at = [numbers.setdefault(value, len(numbers)) for value in values]
    return CodedColumn(list(numbers), at if len(numbers) > 1 else [])


_BETTER = {"faster": 1, "higher": 1, "quicker": -1, "lower": -1}


def _metric(name: str, manifest: Manifest, lang: Lang) -> BoardMetric:
    entry = entry_of(manifest, name)
    if entry is None:
        return BoardMetric(one_line(name), one_line(name), "", 0, is_headline=False)
    unit = entry.shown_unit or entry.unit_of(manifest)
    title = choose(manifest.page.titles.get(name, {}), lang) or choose(entry.title, lang)
    return BoardMetric(
        name=one_line(name),
        title=one_line(title),
        unit="" if unit in ("share", "fraction") else one_line(unit),
        better=_BETTER.get(entry.better or "", 0),
        is_headline=name in headline_names(manifest.kind, manifest.figures),
    )
