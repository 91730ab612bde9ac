"""Comparisons and rows as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from flagperf.bundle.run_record import RecordedRun
from flagperf.compare.comparison import Comparison
from flagperf.compare.contrasts import ComparedFigure
from flagperf.compare.ratio import Contrast
from flagperf.compare.sides import Side
from flagperf.errors import BadInput
from flagperf.report.sections.published_tables import PublishedOf

# Tables as CSV, for programs and for spreadsheets.


def csv_text(columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text piece by piece. What a line lacks is empty; numbers are not rounded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow(line)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def harmless(text: str) -> str:
    """Spreadsheets take a text that begins so for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# Comparisons for programs: JSON and CSV, unrounded. Fields may be added. A change that renames a field or gives it a
# new meaning increments COMPARE_SCHEMA.
#
#     {"schema": 1, "case", "baseline": "A", "margin" (the least that is used),
#      "sides": [{"letter", "word", "runs": [ids], "left_out": [{"run", "status", "reason"}], "simulated",
#                 "published": {"source", "vendor", "device", ...} or null, "paired" (took turns with the baseline)}],
#      "obstacles": [{"side", "code", "text"}],
#      "differences": [{"subject", "name", "values": {letter: text or null}}],
#      "metrics": [{"name", "unit", "better", "headline", "sides": {letter: {"value", "values", "num_runs", "marks",
#                   "reason"}}, "against": {letter: CONTRAST}}],
#      "rows": [{"name", "labels", "unit", "sides": {letter: {"value", "num_runs", "marks"}},
#                "against": {letter: CONTRAST}}],
#      "limits": [{"limit", "side", "state", "why", "by_interval"}],
#      "inside_runs": {"ratio", "low", "high", "num_steps", "effective_steps"} or null}
#
#     CONTRAST: {"ratio", "low", "high", "method" (welch, paired, none), "degrees", "deviation", "num_runs", "margin",
#                "p", "p_corrected", "verdict" (null if there is none), "runs_needed", "why", "why_code"}


COMPARE_SCHEMA = 1


def comparison_to_json(found: Comparison) -> bytes:
    inside = found.inside
    exported = {
        "schema": COMPARE_SCHEMA,
        "case": found.sides[0].case.name,
        "baseline": found.sides[0].letter,
        "margin": found.margin,
        "sides": [
            {
                "letter": side.letter,
                "word": side.word,
                "runs": [recorded.run.id for recorded in side.runs],
                "left_out": [
                    {
                        "run": run.id,
                        "status": run.ending.status if run.ending else None,
                        "reason": run.ending.reason if run.ending else "",
                    }
                    for run in side.left_out
                ],
                "simulated": side.is_simulated,
                "published": side.reference,
                "paired": side.letter in found.paired,
            }
            for side in found.sides
        ],
        "obstacles": [
            {"side": letter, "code": each.code, "text": str(each)}
            for letter, reasons in found.obstacles.items()
            for each in reasons
        ],
        "differences": [
            {"subject": each.subject, "name": each.name, "values": _by_letter(found, each.values)}
            for each in found.differences
        ],
        "metrics": [_figure(figure, found) for figure in found.figures],
        "rows": [
            {
                "name": row.name,
                "labels": row.labels,
                "unit": row.unit,
                "sides": {
                    side.letter: {"value": value, "num_runs": count, "marks": marks}
                    for side, value, count, marks in zip(found.sides, row.values, row.num_runs, row.marks, strict=True)
                },
                "against": _against(found, row.against),
            }
            for row in found.rows.rows
        ],
        "limits": [
            {
                "limit": each.limit.text,
                "side": each.side,
                "state": each.state,
                "why": str(each.why or ""),
                "by_interval": each.by_interval,
            }
            for each in found.limits
        ],
        "inside_runs": inside
        and {
            "ratio": inside.ratio.value,
            "low": inside.ratio.low,
            "high": inside.ratio.high,
            "num_steps": inside.num_steps,
            "effective_steps": inside.effective,
        },
    }
    return msgspec.json.format(msgspec.json.encode(exported), indent=2)


def _figure(figure: ComparedFigure, found: Comparison) -> dict[str, Any]:
    sides = [
        {
            "value": each.value,
            "values": each.values,
            "num_runs": each.num_runs,
            "marks": each.marks,
            "reason": each.reason if each.value is None else None,
        }
        for each in figure.sides
    ]
    return {
        "name": figure.entry.name,
        "unit": figure.unit,
        "better": figure.entry.better,
        "headline": figure.is_headline,
        "sides": _by_letter(found, sides),
        "against": _against(found, figure.against),
    }


def _by_letter(found: Comparison, values: Any) -> dict[str, Any]:
    return {side.letter: value for side, value in zip(found.sides, values, strict=True)}


def _against(found: Comparison, contrasts: tuple[Contrast, ...]) -> dict[str, Any]:
    return {side.letter: contrast_fields(each) for side, each in zip(found.sides[1:], contrasts, strict=True)}


def contrast_fields(contrast: Contrast) -> dict[str, Any]:
    ratio, verdict = contrast.ratio, contrast.verdict
    return {
        "ratio": ratio.value if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "method": ratio.method if ratio else "none",
        "degrees": ratio.degrees if ratio and ratio.has_interval else None,
        "deviation": ratio.deviation if ratio and ratio.has_interval else None,
        "num_runs": ratio.num_runs if ratio else 0,
        "margin": verdict.margin if verdict else None,
        "p": verdict.p if verdict else None,
        "p_corrected": verdict.corrected_p if verdict else None,
        "verdict": contrast.word,
        "runs_needed": verdict.runs_needed if verdict else None,
        "why": str(contrast.why or ""),
        "why_code": contrast.why.code if contrast.why else "",
    }


# --- CSV ------------------------------------------------------------------------------------------------------------


def comparison_to_csv(found: Comparison) -> str:
    """Write a line for each metric and each row of every side but the baseline."""
    names = list(dict.fromkeys(name for row in found.rows.rows for name in row.labels))
    lines: list[dict[str, Any]] = []
    for figure in found.figures:
        for side, value, contrast in zip(found.sides[1:], figure.sides[1:], figure.against, strict=True):
            own = figure.sides[0]
            about = {
                "what": "metric",
                "name": figure.entry.name,
                **dict.fromkeys((f"label_{name}" for name in names), ""),
            }
            values = _line(found, side, figure.unit, own.value, value.value)
            marks = {"baseline_marks": " ".join(own.marks), "side_marks": " ".join(value.marks)}
            lines.append({**about, **values, **marks, **contrast_fields(contrast)})
    for row in found.rows.rows:
        labels = {f"label_{name}": harmless(row.labels.get(name, "")) for name in names}
        others = zip(found.sides[1:], row.values[1:], row.marks[1:], row.against, strict=True)
        for side, number, side_marks, contrast in others:
            about = {"what": "row", "name": row.name, **labels}
            values = _line(found, side, row.unit, row.values[0], number)
            marks = {"baseline_marks": " ".join(row.marks[0]), "side_marks": " ".join(side_marks)}
            lines.append({**about, **values, **marks, **contrast_fields(contrast)})
    return "".join(csv_text(list(lines[0]) if lines else ["what", "name"], lines))


def _line(found: Comparison, side: Side, unit: str, own: float | None, value: float | None) -> dict[str, Any]:
    return {
        "unit": unit,
        "baseline": harmless(found.sides[0].word),
        "side": harmless(side.word),
        "baseline_value": own,
        "side_value": value,
    }


# `report --format csv`: every measured row of runs, unrounded, one line each. Columns may be added.


FIGURES = (
    "median",
    "low",
    "high",
    "p5",
    "p95",
    "mean",
    "cv",
    "burst",
    "first",
    "issue",
    "num_repeats",
    "calls",
    "clock",
    "settled",
    "roofline",
    "share",
    "bound_by",
    "power",
    "energy",
    "power_problem",
)


def to_csv(runs: Sequence[RecordedRun]) -> str:
    """Raise BadInput if none of the runs has rows. A label or figure that a row lacks is empty."""
    rows = [(recorded.run, row) for recorded in runs for row in recorded.run.rows]
    if not rows:
        raise BadInput("--format csv is for measured rows, and no run has any; cases of kind base and operators do")
    labels = list(dict.fromkeys(name for _, row in rows for name in row.labels))
    work = list(dict.fromkeys(name for _, row in rows for name in row.work))
    facts = list(dict.fromkeys(name for _, row in rows for name in row.facts))
    published = {recorded.run.id: PublishedOf(recorded.run) for recorded in runs}
    lines = []
    for run, row in rows:
        interval, speedup, reference = row.interval, row.speedup, published[run.id].of(row)
        line = {
            "run": run.id,
            "vendor": run.job.vendor,
            "device": run.job.device_model.model,
            "row": row.name,
            "rank": row.rank,
            **{name: harmless(row.labels.get(name, "")) for name in labels},
            "status": row.status,
            "problem": harmless(row.problem),
            "unit": row.unit,
            "marks": " ".join(row.marks),
            **{name: getattr(row, name) for name in FIGURES},
            "interval_low": interval.low if interval else None,
            "interval_high": interval.high if interval else None,
            "speedup": speedup.ratio if speedup else None,
            "speedup_low": speedup.low if speedup else None,
            "speedup_high": speedup.high if speedup else None,
            "speedup_p": speedup.p if speedup else None,
            "speedup_blocks": speedup.blocks if speedup else None,
            **{f"{name}_per_call": row.work.get(name) for name in work},
            **{f"{name}_per_second": row.rate(name) if row.work.get(name) else None for name in work},
            **{f"fact_{name}": harmless(row.facts.get(name, "")) for name in facts},
            "published": reference.value if reference else None,  # in the unit of the row
            "published_device": harmless(f"{reference.vendor} {reference.device}") if reference else None,
            "published_source": harmless(reference.source) if reference else None,
        }
        lines.append(line)
    return "".join(csv_text(list(lines[0]), lines))
