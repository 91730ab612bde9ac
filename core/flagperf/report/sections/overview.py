"""The overview of one run: its summary, doubts, rows and published results."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.bundle.run_record import RecordedRun
from flagperf.kinds import KINDS
from flagperf.messages import clauses, label, say
from flagperf.report.document import Block, Bullets, Facts, Heading, LabelledCell, Paragraph, Text
from flagperf.report.sections.published_tables import OwnRun, published_results
from flagperf.report.sections.row_tables import figure_table, measured_tables
from flagperf.report.sections.spread import spread_blocks
from flagperf.report.summary import summarise
from flagperf.report.wording import card_problems, doubts, recorded_operators, vendor_and_device


def overview(recorded: RecordedRun, *, published: bool | None = None) -> Iterator[Block]:
    run, found, labels = recorded.run, summarise(recorded), recorded.labels
    about = found.identity
    device = vendor_and_device(about.vendor, about.card)
    title = (f"{about.case} {about.version}", f"profile {about.profile}", device, about.shape, about.precision)
    yield Heading(", ".join(filter(None, (*title, about.changes))))
    in_table = {figure.name for figure in run.manifest.figures}
    facts = [LabelledCell("run", found.status_cell, clauses([found.reason, *found.cautions], "en"))]
    facts += [
        LabelledCell(each.label, each.cell, clauses([each.note, each.detail], "en"))
        for each in found.figures
        if each.name not in in_table
    ]
    facts += [LabelledCell("tags", Text(""), ", ".join(labels.tags))] if labels.tags else []
    facts += [LabelledCell("note", Text(""), labels.note)] if labels.note else []
    yield Facts(tuple(facts))
    doubted = tuple(Text(sentence) for sentence in doubts(recorded, "en"))
    if doubted:
        yield Bullets(doubted, label("doubts", "en"))
    yield from (Paragraph(problem) for problem in card_problems(recorded, "en"))
    yield from (Paragraph(sentence) for sentence in recorded_operators(recorded, "en"))
    yield from figure_table(run, "en", published=published)
    if "operator_rows" in KINDS[run.manifest.kind].sections:
        from flagperf.report.sections.operator_tables import operator_blocks, replayed_blocks

        yield from operator_blocks(run, "en", published=published)
        yield from replayed_blocks(run, "en")
    else:
        yield from measured_tables(run, "en")
    yield from spread_blocks(run, "en")
    yield from published_results([run.manifest], [OwnRun(run, say("this_run", "en"))], "en", asked=published)
    yield Paragraph(f"bundle: {recorded.path}")
