"""Sides of invented runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report_builders import changed, metrics, recorded

from flagperf.bundle.run_record import RecordedRun, RunGroup
from flagperf.compare.sides import Side
from flagperf.metrics.rows import MeasuredRow


def runs(name: str, speeds: Sequence[float], arm: str = "", **fields: Any) -> list[RecordedRun]:
    """One run for each p_core, a second apart. With an arm, in turns with the other one: A B, B A, ..."""
    found = []
    for index, speed in enumerate(speeds):
        run_id = f"20250102T0304{index:02d}Z-distilbert-{name}"
        one = recorded(
            run_id,
            figures=metrics(p_core=speed, p_train=speed * 0.97, p_whole=speed * 0.9),
            created=f"2025-01-02T03:04:{index:02d}Z",
            **fields,
        )
        if arm:
            place = 2 * index + 1 + ((index % 2 == 0) == (arm == "B"))
            group = RunGroup("group-00c0ffee", place, 2 * len(speeds), arm)
            one = with_run(one, group=group)
        found.append(one)
    return found


def with_run(one: RecordedRun, **fields: Any) -> RecordedRun:
    return changed(one, run=changed(one.run, **fields))  # type: ignore[no-any-return]


def with_rows(one: RecordedRun, seconds: dict[str, float]) -> RecordedRun:
    rows = tuple(
        MeasuredRow("operators", {"operator": name}, "s", num_repeats=3, median=value)
        for name, value in seconds.items()
    )
    return with_run(one, rows=rows)


def side(letter: str, found: Sequence[RecordedRun], **fields: Any) -> Side:
    return Side(letter, f"side-{letter}", tuple(found), **fields)
