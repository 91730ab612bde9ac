"""Runs with the marks of the rules that they break. Whatever is shown of a run goes through here; what is recorded and
verified does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec

from flagperf.errors import BadInput
from flagperf.metrics import Mark, MeasuredRow, Metric
from flagperf.plausibility import at_once, contradictions, figures, rows, speed, telemetry, together
from flagperf.plausibility.rule import Rule, Seen, rules
from flagperf.store.bundle import read_bundle
from flagperf.store.run import Doubt, RecordedRun, Run
from flagperf.store.run_line import RunLine

CHECKS = (
    *contradictions.CHECKS,
    *speed.CHECKS,
    *figures.CHECKS,
    *at_once.CHECKS,
    *rows.CHECKS,
    *telemetry.CHECKS,
)
"""Rule id -> a check of one run. Some rules have several."""

Break = tuple[str, Seen]


def read_marked(paths: Sequence[Path]) -> list[RecordedRun]:
    """Bundles as they are shown."""
    return marked([read_bundle(path) for path in paths])


def marked(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """A pure function of the recorded runs: marks and doubts of an earlier call are found again, not doubled."""
    breaks = [list(_breaks(recorded)) for recorded in runs]
    for index, name, seen in together.between(runs):
        breaks[index].append((name, seen))
    return [_with(recorded, found) for recorded, found in zip(runs, breaks, strict=True)]


def marked_line(line: RunLine, path: Path) -> RunLine:
    """A line of a list, with the marks of its run. One that cannot be read as a whole stays as it is."""
    try:
        run = read_marked([path])[0].run if line.headline else None
    except BadInput:
        run = None
    found = {metric.name: metric.marks for metric in run.metrics} if run else {}
    headline = [msgspec.structs.replace(each, marks=found.get(each.name, each.marks)) for each in line.headline]
    return msgspec.structs.replace(line, headline=tuple(headline))


def refusals(recorded: RecordedRun) -> Iterator[Seen]:
    """Why no page is written of a run. Figures of a run without results are not on a page."""
    if recorded.run.has_results:
        yield from (seen for name, seen in _breaks(recorded) if rules()[name].effect == "refused")


def _breaks(recorded: RecordedRun) -> Iterator[Break]:
    yield from ((name, seen) for name, check in CHECKS for seen in check(recorded, rules()[name]))
    yield from _withheld(recorded.run)


def _withheld(run: Run) -> Iterator[Break]:
    """Values that a formula did not give because they cannot be true: one for each cause."""
    for name, rule in rules().items():
        found: dict[str, list[Metric]] = {}
        for metric in run.metrics:
            if metric.reason == "invalid_telemetry" and metric.message and metric.message.code in rule.messages:
                found.setdefault(str(metric.message), []).append(metric)
        for metrics in found.values():
            said = metrics[0].message
            assert said is not None
            yield name, Seen(said, tuple(metric.name for metric in metrics))


def _with(recorded: RecordedRun, breaks: Sequence[Break]) -> RecordedRun:
    run, doubts = recorded.run, []
    marks: dict[str, dict[str, None]] = {}
    row_marks: dict[int, dict[str, None]] = {}
    for name, seen in breaks:
        names = _marked_metrics(run, rules()[name], seen)
        doubts.append(Doubt(name, seen.message, seen.metrics or names))
        for each in names:
            marks.setdefault(each, {})[name] = None
        for index in (*seen.rows, *_rows_of(run, names)):
            row_marks.setdefault(index, {})[name] = None
    metrics = tuple(_metric(metric, marks.get(metric.name, {})) for metric in run.metrics)
    marked_rows = tuple(_row(row, row_marks.get(index, {})) for index, row in enumerate(run.rows))
    changed = msgspec.structs.replace(run, metrics=metrics, rows=marked_rows)
    return msgspec.structs.replace(recorded, run=changed, doubts=tuple(dict.fromkeys(doubts)))


def _marked_metrics(run: Run, rule: Rule, seen: Seen) -> tuple[str, ...]:
    """Those that have a value: one that is missing has its reason."""
    if rule.effect == "withheld" or (seen.rows and not seen.metrics):
        return ()
    wanted = seen.metrics or tuple(metric.name for metric in run.metrics)
    return tuple(
        metric.name
        for metric in run.metrics
        if metric.name in wanted and metric.value is not None and rule.may_mark(metric.name, run)
    )


def _rows_of(run: Run, names: Sequence[str]) -> Iterator[int]:
    """Indices of the rows that marked figures stand for."""
    figures_of = [metric.inputs for metric in run.metrics if metric.name in names and "row" in metric.inputs]
    for index, row in enumerate(run.rows):
        if any(row.name == inputs["row"] and row.labels == inputs.get("labels") for inputs in figures_of):
            yield index


def _metric(metric: Metric, added: dict[str, None]) -> Metric:
    """Ids of rules are marks; a test compares the two."""
    marks = tuple(dict.fromkeys((*metric.marks, *cast(tuple[Mark, ...], tuple(added)))))
    return metric if marks == metric.marks else msgspec.structs.replace(metric, marks=marks)


def _row(row: MeasuredRow, added: dict[str, None]) -> MeasuredRow:
    marks = tuple(dict.fromkeys((*row.marks, *cast(tuple[Mark, ...], tuple(added)))))
    return row if marks == row.marks else msgspec.structs.replace(row, marks=marks)
