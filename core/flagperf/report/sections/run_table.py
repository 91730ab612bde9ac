"""Several runs as a table, and what repeats of one run say together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.messages import Lang, clauses, explain, label, say, usable
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.registry import main_entries
from flagperf.report.document import Block, Empty, Head, NoteGroup, Notes, Table, TableCell, Text, Value
from flagperf.report.sections.alignment_blocks import verdict_sentence
from flagperf.report.sections.published_tables import OwnRun, published_results
from flagperf.report.sections.result_tables import columns
from flagperf.report.summary import summarise
from flagperf.report.wording import doubts, short_ids, with_unit
from flagperf.stats import median


def comparison(recorded: Sequence[RecordedRun], *, published: bool | None = None) -> Iterator[Block]:
    """Show runs in the order given, with the columns of the pages of their cases that apply to at least one of them. A
    missing value is shown as its reason code, where a page has `/`."""
    runs = [each.run for each in recorded]
    summaries = [summarise(each) for each in recorded]
    ids = short_ids(run.id for run in runs)
    manifests = tuple({(run.manifest.name, run.manifest.version): run.manifest for run in runs}.values())
    known = {column.name: column for manifest in manifests for column in columns(manifest)}
    rows: list[dict[str, TableCell]] = []
    for run in runs:
        own = {column.name: column.of_run(run, "en") for column in columns(run.manifest)}
        rows.append({name: own.get(name, Empty("not_applicable")) for name in known})
    shown = [name for name in known if any(getattr(row[name], "reason", "") != "not_applicable" for row in rows)]
    identity = ("run", "status", "vendor", *(("case",) if len(manifests) > 1 else ()))
    heads = (*(Head(name) for name in identity), *(known[name].titled("en", runs) for name in shown))
    lines = []
    remarks: dict[str, list[str]] = {}
    for each, summary, row in zip(recorded, summaries, rows, strict=True):
        about = summary.identity
        cells = (Text(about.run, ids[about.run]), summary.status_cell, Text(about.vendor), Text(about.case))
        lines.append((*cells[: len(identity)], *(row[name] for name in shown)))
        said = [clauses(summary.cautions, "en")]
        if (verdict := each.run.metric(LOSS_ALIGNED.name)) is not None:
            why = explain(verdict.reason or "", "en", usable(verdict.message, verdict.detail))
            said.append(verdict_sentence(verdict, "en") or f"no verdict on loss alignment: {why}")
        for text in filter(None, (*said, *doubts(each, "en"))):
            remarks.setdefault(text, []).append(ids[about.run])
    yield Table(heads, tuple(lines))
    notes = [text if len(names) == len(runs) else f"{', '.join(names)}: {text}" for text, names in remarks.items()]
    if notes:
        yield Notes((NoteGroup("", tuple(notes)),), label("notes", "en"))
    yield from published_results(manifests, [OwnRun(run, ids[run.id]) for run in runs], "en", asked=published)


HEADS = ("head_name", "head_runs", "head_median", "head_spread", "head_apart")


def repeats(runs: Sequence[Run], lang: Lang, name: str) -> Iterator[Block]:
    """Show the median of every main metric of the group `name`, and how far its runs are apart; nothing if no run has
    results."""
    found = [run for run in runs if run.has_results]
    if not found:
        return
    rows: list[tuple[TableCell, ...]] = []
    for entry in main_entries(found[0].manifest):
        metrics = [each for run in found if (each := run.metric(entry.name)) is not None and each.value is not None]
        values = sorted(float(metric.value) for metric in metrics if metric.value is not None)
        if not values:
            continue
        middle = median(values)
        marks = tuple(dict.fromkeys(mark for metric in metrics for mark in metric.marks))
        rows.append(
            (
                Text(entry.head or entry.name),
                Text(str(len(values))),
                Value(with_unit(entry, middle, metrics[0].unit), marks=marks),
                Text(f"{entry.format(values[0])} - {entry.format(values[-1])}"),
                Text(units.percent((values[-1] - values[0]) / middle) if middle else ""),
            )
        )
    remark = say("repeats_of", lang, count=len(found), all=len(runs))
    title = say("line", lang, label=label("repeats", lang), value=name)
    yield Table(tuple(Head(label(head, lang)) for head in HEADS), tuple(rows), title, remark)
