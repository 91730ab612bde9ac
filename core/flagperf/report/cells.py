"""Cell: what stands in one place of a table, before it is printed anywhere.

How a page prints it, so that people and parsers read the same:

    12.3          a value, in its one format
    12.3 [2]      a value that note 2 has something to say about (a mark); several notes are `[2,3]`
    / [1]         no value; note 1 has the reason code and what was seen
    /             in the column fix_hp alone: nothing was changed

A parser cuts ` [digits]` off the end, and what is left is the value or `/`. Square brackets of a value itself are
escaped (`\\[`), so the two cannot be mixed up. Terminal tables print the reason code in the place of `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flagperf import units
from flagperf.report.texts import Lang, explain
from flagperf.store.run import Run

EMPTY = "/"

Formatter = Callable[[float], str]


class Cell(msgspec.Struct, frozen=True):
    text: str
    reason: str = ""
    """A code of codes.CODES, where there is no value."""
    detail: str = ""
    marks: tuple[str, ...] = ()


def empty(reason: str, detail: str = "") -> Cell:
    return Cell(EMPTY, reason, detail)


def has_results(run: Run) -> bool:
    """A run that ended by itself and measured everything. One that missed its target did; the notes say so."""
    return run.ending is not None and run.ending.status in ("succeeded", "target_missed")


def metric_cell(run: Run, name: str, form: Formatter) -> Cell:
    """A metric as a result of the run."""
    return measured_cell(run, name, form) if has_results(run) else failure_cell(run)


def measured_cell(run: Run, name: str, form: Formatter) -> Cell:
    """A metric as far as it was measured, however the run ended."""
    metric = run.metric(name)
    if metric is None:
        return empty("not_measured", name)
    if metric.value is None:
        return empty(metric.reason or "not_measured", metric.detail)
    return Cell(form(metric.value), marks=metric.marks)


def memory_cell(run: Run) -> Cell:
    return joined([measured_cell(run, name, units.gib) for name in ("mem_used", "mem_total")], "/")


def joined(cells: Sequence[Cell], separator: str) -> Cell:
    """Several values in one cell; empty where one of them is."""
    for cell in cells:
        if cell.reason:
            return cell
    marks = dict.fromkeys(mark for cell in cells for mark in cell.marks)
    return Cell(separator.join(cell.text for cell in cells), marks=tuple(marks))


def failure_cell(run: Run) -> Cell:
    """The cells of a run without results: speeds and losses that it had until then are none."""
    if run.ending is None:
        return empty("run_failed", "no_ending")
    code = "unsupported" if run.ending.status == "unsupported" else "run_failed"
    return empty(code, ": ".join(part for part in (run.ending.status, run.ending.reason) if part))


def explanations(cell: Cell, lang: Lang) -> list[str]:
    """What the notes say about the cell."""
    if cell.reason:
        return [explain(cell.reason, lang, cell.detail)]
    return [explain(mark, lang) for mark in cell.marks]
