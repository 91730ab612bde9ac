"""Published results beside own runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import msgspec

from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, label, listed, say
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import NOTHING, Block, Head, Link, Links, Paragraph, Table, TableCell, Text
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import COLUMNS, UNPUBLISHED, Column, columns
from flagperf.report.wording import run_configuration, short_configuration
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import PublishedResult, PublishedRows

# Published results of a case next to the user's own runs: the same columns, the own rows first and marked, and the
# source of each published result.


MAX_ROWS = 6
"""A longer table is collapsed."""

REPOSITORY = "https://github.com/FlagOpen/FlagPerf/blob/main/"

_PATH_THERE = re.compile(r"(training|inference|base|operation)/[\w./-]+")


class OwnRun(msgspec.Struct, frozen=True):
    """A run that is listed with the published results."""

    run: Run
    mark: str


def published(page: PageRuns) -> Iterator[Block]:
    """The section of a page. It includes the sources."""
    marks = [
        say("this_run" if len(page.runs) == 1 else "this_row", page.lang, row=row + 1) for row in range(len(page.runs))
    ]
    own = [OwnRun(recorded.run, mark) for recorded, mark in zip(page.runs, marks, strict=True)]
    yield from published_results([page.manifest], own, page.lang, sources=True, asked=page.published)


def is_compared(_run: Run, asked: bool | None) -> bool:
    """Whether published results stand beside a run: as the user `asked`."""
    return True if asked is None else asked


def published_results(
    manifests: Sequence[Manifest],
    own: Sequence[OwnRun],
    lang: Lang,
    *,
    sources: bool = False,
    asked: bool | None = None,
) -> Iterator[Block]:
    """Give one table for all cases with the same columns, which cases of one kind have, beside the runs of `own` that
    have results and are compared, and one line about those that are not. No table if nothing is published, or if none
    of the runs is compared."""
    if asked is False:
        return
    with_results = [each for each in own if each.run.has_results]
    left_out = [each.run for each in with_results if not is_compared(each.run, asked)]
    profiles = dict.fromkeys(
        run.job.profile for run in left_out if any(each.values for each in run.manifest.references)
    )
    if profiles:
        yield Paragraph(say("published_left_out", lang, profiles=listed(list(profiles), lang)))
    families: dict[tuple[str, ...], list[Manifest]] = {}
    for manifest in manifests:
        families.setdefault(manifest.page.columns, []).append(manifest)
    for family in families.values():
        names = {manifest.name for manifest in family}
        compared = [each for each in with_results if each.run.manifest.name in names and each.run not in left_out]
        if compared or all(each.run.manifest.name not in names for each in own):
            yield from _table(family, compared, lang, sources=sources, cases=len(manifests) > 1)


def _table(
    manifests: Sequence[Manifest], compared: Sequence[OwnRun], lang: Lang, *, sources: bool, cases: bool
) -> Iterator[Block]:
    found = [(manifest.name, each) for manifest in manifests for each in _joined(manifest.references)]
    if not found:
        return
    shown = _worth_showing(manifests, compared, [line.reference for _, line in found], lang)
    rows = [
        *(_row(_own_name(each, lang), each.run.manifest.name, _own_cells(each.run, shown, lang)) for each in compared),
        *(
            _row(_name(line, lang, sources), case, _cells(line, shown, lang), _source(line, lang))
            for case, line in found
        ),
    ]
    heads = (COLUMNS["configuration"].titled(lang), Head(label("case", lang)), *(each.titled(lang) for each in shown))
    title = say("published_of", lang, cases=listed([each.name for each in manifests], lang))
    title = title if cases else label("published", lang)
    table = Table((*heads, Head(label("source", lang))), tuple(rows), title)
    yield _without(table, {1: not cases, len(heads): not sources}, _remark(manifests, lang))


class Line(msgspec.Struct, frozen=True):
    """A published result, put together from all sources of the same configuration."""

    reference: PublishedResult
    sources: tuple[str, ...]


def _joined(references: Sequence[PublishedResult]) -> list[Line]:
    """Results of one configuration that are of other metrics: some are published on a page for each."""
    lines: list[Line] = []
    for reference in references:
        bare = msgspec.structs.replace(reference, values={}, source="")
        for number, line in enumerate(lines):
            of_line = msgspec.structs.replace(line.reference, values={}, source="")
            if of_line == bare and not line.reference.values.keys() & reference.values.keys():
                values = {**line.reference.values, **reference.values}
                both = msgspec.structs.replace(line.reference, values=values)
                lines[number] = Line(both, (*line.sources, reference.source))
                break
        else:
            lines.append(Line(reference, (reference.source,)))
    return [line for line in lines if line.reference.values]


def _worth_showing(
    manifests: Sequence[Manifest], own: Sequence[OwnRun], found: Sequence[PublishedResult], lang: Lang
) -> list[Column]:
    """The columns that have a value in a published result, or a text (such as overrides) in an own run."""
    every = {column.name: column for manifest in manifests for column in columns(manifest)}
    every.pop("configuration", None)
    return [
        each
        for each in every.values()
        if any(each.of_reference(one, lang) != UNPUBLISHED for one in found)
        or any(_says_something(each.of_run(one.run, lang)) for one in own)
    ]


def _says_something(cell: TableCell) -> bool:
    return isinstance(cell, Text) and cell != UNPUBLISHED


def _row(
    name: TableCell, case: str, cells: Sequence[TableCell], source: TableCell = UNPUBLISHED
) -> tuple[TableCell, ...]:
    return (name, Text(case), *cells, source)


def _own_name(own: OwnRun, lang: Lang) -> TableCell:
    names = (run_configuration(own.run, lang), short_configuration(own.run))
    full, short = (say("line", lang, label=own.mark, value=name) for name in names)
    return Text(full, short, strong=True)


def _own_cells(run: Run, shown: Sequence[Column], lang: Lang) -> list[TableCell]:
    own = {column.name: column for column in columns(run.manifest)}
    return [own[each.name].of_run(run, lang) if each.name in own else Text(NOTHING) for each in shown]


def _name(line: Line, lang: Lang, sources: bool) -> TableCell:
    """An imported one without a column for its source says it here."""
    reference = line.reference
    cell = COLUMNS["configuration"].of_reference(reference, lang)
    if sources or not reference.sha256 or not isinstance(cell, Text):
        return cell
    remark = f"{PurePath(reference.source).name}:{reference.line}"
    full, short = (say("with_remark", lang, text=text, remark=remark) for text in (cell.text, cell.short))
    return Text(full, short)


def _cells(line: Line, shown: Sequence[Column], lang: Lang) -> list[TableCell]:
    return [column.of_reference(line.reference, lang) for column in shown]


def _source(line: Line, lang: Lang) -> TableCell:
    reference = line.reference
    if reference.sha256:
        grade = label(f"grade_{reference.grade}", lang)
        return Text(say("imported_from", lang, source=reference.source, line=reference.line, grade=grade))
    cells = [link_to(source, source) for source in line.sources]
    links = tuple(cell for cell in cells if isinstance(cell, Link))
    if len(cells) == 1:
        return cells[0]
    return Links(links) if len(links) == len(cells) else Text(", ".join(line.sources))


def link_to(source: str, text: str) -> Link | Text:
    """A link if the source is a URL or a file in the repository of published results."""
    if source.startswith("https://"):
        return Link(text, source)
    return Link(text, REPOSITORY + source) if _PATH_THERE.fullmatch(source) else Text(text)


def _without(table: Table, columns: dict[int, bool], remark: str) -> Table:
    """Remove the columns whose index maps to True."""
    kept = [index for index in range(len(table.heads)) if not columns.get(index)]
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    heads = tuple(table.heads[index] for index in kept)
    return Table(heads, rows, table.title, remark, collapsed=len(rows) > MAX_ROWS)


def _remark(manifests: Sequence[Manifest], lang: Lang) -> str:
    bare = [each for manifest in manifests for each in manifest.references if not each.values]
    names = [f"{each.vendor} {each.device} {each.nodes}x{each.devices_per_node}" for each in bare]
    return say("published_bare", lang, names=listed(list(dict.fromkeys(names)), lang)) if names else ""


# Published values of single rows, beside what a run measured of the same.


class PublishedRow(msgspec.Struct, frozen=True):
    """One value, in the unit of the row."""

    row: str
    labels: dict[str, str]
    value: float
    vendor: str
    device: str
    source: str


class PublishedOf:
    """What was published of the rows of a run."""

    def __init__(self, run: Run) -> None:
        self._found = [each for table in run.manifest.published_rows for each in _lines(table)]
        card = run.job.device_model
        names = (card.model, card.short_name)
        self._found.sort(key=lambda each: each.vendor != run.job.vendor or each.device not in names)

    def of(self, row: MeasuredRow) -> PublishedRow | None:
        """On such a card, else on the first that has one."""
        return next((each for each in self._found if each.row == row.name and _fits(each.labels, row.labels)), None)


def _fits(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == text for name, text in wanted.items())


def _lines(table: PublishedRows) -> list[PublishedRow]:
    found = []
    for *texts, value in table.values:
        labels = {**table.where, **dict(zip(table.by, map(str, texts), strict=True))}
        source = table.source
        for name, text in labels.items():
            source = source.replace(f"{{{name}}}", text)
        found.append(PublishedRow(table.row, labels, float(value), table.vendor, table.device, source))
    return found
