"""Published results beside own runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import msgspec

from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, label, listed, say
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Block, Head, Link, Links, Paragraph, Table, TableCell, Text
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import COLUMNS, UNPUBLISHED, columns
from flagperf.report.wording import is_beside_published, run_configuration, short_configuration
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import PublishedResult

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
    """Build the section of a page. It includes the sources."""
    name = "this_run" if len(page.runs) == 1 else "this_row"
    own = [OwnRun(each.run, say(name, page.lang, row=row)) for row, each in enumerate(page.runs, start=1)]
    yield from published_results([page.manifest], own, page.lang, sources=True, asked=page.published)


def published_results(
    manifests: Sequence[Manifest],
    own: Sequence[OwnRun],
    lang: Lang,
    *,
    sources: bool = False,
    asked: bool | None = None,
) -> Iterator[Block]:
    """Give one table for all cases with the same columns, which cases of one kind have, beside the runs of `own` that
    have results and may stand there, and one line about those that may not. Give none if nothing is published, if
    there is no such run, or if `asked` is False."""
    if asked is False:
        return
    with_results = [each for each in own if each.run.has_results]
    compared = [each for each in with_results if is_beside_published(each.run, asked)]
    left_out = [each.run for each in with_results if each not in compared]
    profiles = dict.fromkeys(
        run.job.profile
        for run in left_out
        if any(reference.values for reference in run.manifest.references)
        or (run.manifest.published_rows and run.job.recording is None)
    )
    if profiles:
        yield Paragraph(say("published_left_out", lang, profiles=listed(list(profiles), lang)))
    families: dict[tuple[str, ...], list[Manifest]] = {}
    for manifest in manifests:
        families.setdefault(manifest.page.columns, []).append(manifest)
    for family in families.values():
        names = {manifest.name for manifest in family}
        of_family = [each for each in compared if each.run.manifest.name in names]
        if of_family or all(each.run.manifest.name not in names for each in own):
            yield from _table(family, of_family, lang, sources=sources, cases=len(manifests) > 1)


def _table(
    manifests: Sequence[Manifest], compared: Sequence[OwnRun], lang: Lang, *, sources: bool, cases: bool
) -> Iterator[Block]:
    found = [(manifest.name, each) for manifest in manifests for each in _joined(manifest.references)]
    if not found:
        return
    every = {column.name: column for manifest in manifests for column in columns(manifest)}
    every.pop("configuration", None)
    # Only columns that have a value in a published result, or a text (such as overrides) in an own run.
    shown = [
        column
        for column in every.values()
        if any(column.of_reference(line.reference, lang) != UNPUBLISHED for _, line in found)
        or any(isinstance(cell := column.of_run(each.run, lang), Text) and cell != UNPUBLISHED for each in compared)
    ]
    rows: list[tuple[TableCell, ...]] = []
    for each in compared:
        own = {column.name: column.of_run(each.run, lang) for column in columns(each.run.manifest)}
        names = (run_configuration(each.run, lang), short_configuration(each.run))
        full, short = (say("line", lang, label=each.mark, value=name) for name in names)
        case = (Text(each.run.manifest.name),) if cases else ()
        cells = (own[column.name] for column in shown)
        rows.append((Text(full, short, strong=True), *case, *cells, *((UNPUBLISHED,) if sources else ())))
    for name, line in found:
        reference = line.reference
        configuration = COLUMNS["configuration"].of_reference(reference, lang)
        if not sources and reference.sha256 and isinstance(configuration, Text):  # imported: it names its source here
            remark = f"{PurePath(reference.source).name}:{reference.line}"
            names = (configuration.text, configuration.short)
            full, short = (say("with_remark", lang, text=text, remark=remark) for text in names)
            configuration = Text(full, short)
        case = (Text(name),) if cases else ()
        cells = (column.of_reference(reference, lang) for column in shown)
        rows.append((configuration, *case, *cells, *((_source(line, lang),) if sources else ())))
    heads = [COLUMNS["configuration"].titled(lang), *([Head(label("case", lang))] if cases else [])]
    heads += [*(column.titled(lang) for column in shown), *([Head(label("source", lang))] if sources else [])]
    title = label("published", lang)
    if cases:
        title = say("published_of", lang, cases=listed([each.name for each in manifests], lang))
    bare = [each for manifest in manifests for each in manifest.references if not each.values]
    without = dict.fromkeys(f"{each.vendor} {each.device} {each.nodes}x{each.devices_per_node}" for each in bare)
    remark = say("published_bare", lang, names=listed(list(without), lang)) if bare else ""
    yield Table(tuple(heads), tuple(rows), title, remark, collapsed=len(rows) > MAX_ROWS)


class Line(msgspec.Struct, frozen=True):
    """A published result, put together from all sources of the same configuration."""

    reference: PublishedResult
    sources: tuple[str, ...]


def _joined(references: Sequence[PublishedResult]) -> list[Line]:
    """Join results of one configuration that have different metrics: some are published on a page for each."""
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
    """Return a link if the source is a URL or a file in the repository of published results."""
    if source.startswith("https://"):
        return Link(text, source)
    return Link(text, REPOSITORY + source) if _PATH_THERE.fullmatch(source) else Text(text)


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
    """The published values of the rows of a run."""

    def __init__(self, run: Run) -> None:
        self._found: list[PublishedRow] = []
        for table in run.manifest.published_rows:
            for *texts, value in table.values:
                labels = {**table.where, **dict(zip(table.by, map(str, texts), strict=True))}
                source = table.source
                for name, text in labels.items():
                    source = source.replace(f"{{{name}}}", text)
                self._found.append(PublishedRow(table.row, labels, float(value), table.vendor, table.device, source))
        card = run.job.device_model
        names = (card.model, card.short_name)
        self._found.sort(key=lambda each: each.vendor != run.job.vendor or each.device not in names)

    def of(self, row: MeasuredRow) -> PublishedRow | None:
        """Return the value that was published for such a card, else for the first card that has one."""
        for each in self._found:
            if each.row == row.name and each.labels.items() <= row.labels.items():
                return each
        return None
