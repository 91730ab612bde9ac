"""Several runs as a table, in the order given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf.messages import usable
from flagperf.metrics import LOSS_ALIGNED
from flagperf.report.document import Block, Empty, Head, NoteGroup, Notes, Table, TableCell, Text
from flagperf.report.sections.alignment import verdict_sentence
from flagperf.report.sections.card import caution, status_cell
from flagperf.report.sections.columns import Column, columns
from flagperf.report.sections.naming import short_ids, vendor_word
from flagperf.report.sections.published import OwnRun, published_results
from flagperf.report.sections.sentences import doubts
from flagperf.report.texts import explain, label
from flagperf.store.run import RecordedRun, Run


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
