"""Table cells for recorded runs: a metric, the memory, a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flagperf import units
from flagperf.messages import message, usable
from flagperf.report.document import Empty, Value
from flagperf.store.run import Run

Formatter = Callable[[float], str]


def metric_cell(run: Run, name: str, form: Formatter) -> Value | Empty:
    """A metric, or the failure if the run has no results."""
    return measured_cell(run, name, form) if run.has_results else failure_cell(run)


def measured_cell(run: Run, name: str, form: Formatter, unit: str = "") -> Value | Empty:
    """A metric, if it was measured, however the run ended."""
    metric = run.metric(name)
    if metric is None:
        return Empty("not_measured", name)
    if metric.value is None:
        return Empty(metric.reason or "not_measured", usable(metric.message, metric.detail))
    return Value(form(metric.value), unit, metric.marks)


def memory_cell(run: Run, unit: str = "") -> Value | Empty:
    return joined([measured_cell(run, name, units.gib) for name in ("mem_used", "mem_total")], "/", unit)


def joined(cells: Sequence[Value | Empty], separator: str, unit: str = "") -> Value | Empty:
    """Several values in one cell. Empty if any of them is empty."""
    values = []
    for cell in cells:
        if isinstance(cell, Empty):
            return cell
        values.append(cell)
    marks = dict.fromkeys(mark for value in values for mark in value.marks)
    return Value(separator.join(value.text for value in values), unit, tuple(marks))


def failure_cell(run: Run) -> Empty:
    """The cell of a run without results. Speeds and losses that it measured before it ended are not results."""
    if run.ending is None:
        return Empty("not_measured", message("page.no_ending"))
    code = "unsupported" if run.ending.status == "unsupported" else "run_failed"
    why = usable(run.ending.message, run.ending.reason)
    return Empty(code, message("page.ended", status=run.ending.status, why=why) if why else run.ending.status)
