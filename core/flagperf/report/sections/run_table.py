"""Several runs, repeats of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.messages import Lang, explain, label, say, usable
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import main_entries
from flagperf.report.document import Block, Empty, Head, NoteGroup, Notes, Table, TableCell, Text, Value
from flagperf.report.sections.alignment_blocks import verdict_sentence
from flagperf.report.sections.overview import caution, status_cell
from flagperf.report.sections.published_tables import OwnRun, published_results
from flagperf.report.sections.result_tables import Column, columns
from flagperf.report.wording import doubts, short_ids, vendor_word, with_unit
from flagperf.stats import median

# Several runs as a table, in the order given.


def comparison(recorded: Sequence[RecordedRun], *, published: bool = True) -> Iterator[Block]:
    """The columns are those of the cases' pages. A missing value is shown as its reason code, where a page has `/`."""
    runs = [each.run for each in recorded]
    ids = short_ids(run.id for run in runs)
    manifests = tuple({(run.manifest.name, run.manifest.version): run.manifest for run in runs}.values())
    shown = _applicable(runs, {column.name: column for manifest in manifests for column in columns(manifest)})
    identity = ("run", "status", "vendor", *(("case",) if len(manifests) > 1 else ()))
    heads = (*(Head(name) for name in identity), *(column.titled("en", runs) for column in shown))
    rows = tuple((*_identity(each, ids, len(identity)), *_cells(each.run, shown)) for each in recorded)
    yield Table(heads, rows)
    yield from _notes(recorded, ids)
    if published:
        yield from published_results(manifests, [OwnRun(run, ids[run.id]) for run in runs], "en")


def _applicable(runs: Sequence[Run], known: dict[str, Column]) -> list[Column]:
    """The columns that apply to at least one of the runs."""
    return [each for each in known.values() if any(_reason(cell) != "not_applicable" for cell in _column(runs, each))]


def _column(runs: Sequence[Run], column: Column) -> list[TableCell]:
    return [_cells(run, [column])[0] for run in runs]


def _reason(cell: TableCell) -> str:
    return cell.reason if isinstance(cell, Empty) else ""


def _identity(recorded: RecordedRun, ids: dict[str, str], count: int) -> tuple[TableCell, ...]:
    run = recorded.run
    cells = (Text(run.id, ids[run.id]), status_cell(recorded), Text(vendor_word(run)), Text(run.manifest.name))
    return cells[:count]


def _cells(run: Run, shown: Sequence[Column]) -> list[TableCell]:
    own = {column.name: column for column in columns(run.manifest)}
    return [own[each.name].of_run(run, "en") if each.name in own else Empty("not_applicable") for each in shown]


def _notes(runs: Sequence[RecordedRun], ids: dict[str, str]) -> Iterator[Block]:
    """Caveats for comparing the rows. A caveat that applies to all runs is printed once, without run ids."""
    found: dict[str, list[str]] = {}
    for recorded in runs:
        run = recorded.run
        for text in filter(None, (caution(run), _verdict(run), *doubts(recorded, "en"))):
            found.setdefault(text, []).append(ids[run.id])
    notes = [text if len(names) == len(runs) else f"{', '.join(names)}: {text}" for text, names in found.items()]
    if notes:
        yield Notes((NoteGroup("", tuple(notes)),), label("notes", "en"))


def _verdict(run: Run) -> str:
    verdict = run.metric(LOSS_ALIGNED.name)
    if verdict is None:
        return ""
    why = explain(verdict.reason or "", "en", usable(verdict.message, verdict.detail))
    return verdict_sentence(verdict, "en") or f"no verdict on loss alignment: {why}"


# What a group of repeats says together: of every main metric the median, and how far its runs are apart.


HEADS = ("head_name", "head_runs", "head_median", "head_spread", "head_apart")


def repeats(runs: Sequence[Run], lang: Lang, name: str) -> Iterator[Block]:
    """`name` is that of the group. Nothing without results."""
    found = [run for run in runs if run.has_results]
    if not found:
        return
    heads = tuple(Head(label(head, lang)) for head in HEADS)
    rows = tuple(row for entry in main_entries(found[0].manifest) if (row := tuple(_repeat_cells(entry, found))))
    remark = say("repeats_of", lang, count=len(found), all=len(runs))
    yield Table(heads, rows, say("line", lang, label=label("repeats", lang), value=name), remark)


def _repeat_cells(entry: MetricEntry, runs: Sequence[Run]) -> Iterator[TableCell]:
    """Nothing if no run has it."""
    metrics = [metric for run in runs if (metric := run.metric(entry.name)) is not None and metric.value is not None]
    values = sorted(float(metric.value) for metric in metrics if metric.value is not None)
    if not values:
        return
    middle = median(values)
    marks = tuple(dict.fromkeys(mark for metric in metrics for mark in metric.marks))
    yield Text(entry.head or entry.name)
    yield Text(str(len(values)))
    yield Value(with_unit(entry, middle, metrics[0].unit), marks=marks)
    yield Text(f"{entry.format(values[0])} - {entry.format(values[-1])}")
    yield Text(units.percent((values[-1] - values[0]) / middle) if middle else "")
