"""`report --format csv`: every measured row of runs, unrounded, one line each. Columns may be added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flagperf.errors import BadInput
from flagperf.metrics import MeasuredRow
from flagperf.report.csv_text import csv_text, harmless
from flagperf.report.sections.published_rows import PublishedOf, PublishedRow
from flagperf.store.run import RecordedRun, Run

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
    """Raises BadInput if none of the runs has rows."""
    rows = [(recorded.run, row) for recorded in runs for row in recorded.run.rows]
    if not rows:
        raise BadInput("--format csv is for measured rows, and no run has any; cases of kind base and operators do")
    labels = list(dict.fromkeys(name for _, row in rows for name in row.labels))
    work = list(dict.fromkeys(name for _, row in rows for name in row.work))
    facts = list(dict.fromkeys(name for _, row in rows for name in row.facts))
    published = {recorded.run.id: PublishedOf(recorded.run) for recorded in runs}
    lines = [{**_line(run, row, labels, work, facts), **_published(published[run.id].of(row))} for run, row in rows]
    return "".join(csv_text(list(lines[0]), lines))


def _line(
    run: Run, row: MeasuredRow, labels: Sequence[str], work: Sequence[str], facts: Sequence[str]
) -> dict[str, Any]:
    """A label that a row lacks, and a figure that it has not, are empty."""
    interval, speedup = row.interval, row.speedup
    return {
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
    }


def _published(found: PublishedRow | None) -> dict[str, Any]:
    """In the unit of the row."""
    if found is None:
        return dict.fromkeys(("published", "published_device", "published_source"))
    return {
        "published": found.value,
        "published_device": harmless(f"{found.vendor} {found.device}"),
        "published_source": harmless(found.source),
    }
