"""The documents that commands show. Published pages are in page.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flagperf.compare import Comparison
from flagperf.messages import Lang
from flagperf.metrics import Alignment, LossCurve
from flagperf.report.document import Document
from flagperf.report.sections.alignment import alignment_blocks
from flagperf.report.sections.card import card
from flagperf.report.sections.case import Contents, case_blocks
from flagperf.report.sections.compared import comparison_blocks
from flagperf.report.sections.compared_page import comparison_page
from flagperf.report.sections.comparison import comparison
from flagperf.report.sections.repeats import repeats
from flagperf.report.texts import say
from flagperf.spec import Manifest
from flagperf.store.run import RecordedRun, Run


def run_report(runs: Sequence[RecordedRun], *, published: bool = True) -> Document:
    """The card of a single run, or a table of several runs."""
    blocks = card(runs[0], published=published) if len(runs) == 1 else comparison(runs, published=published)
    return Document("en", tuple(blocks))


def alignment_report(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Document:
    return Document("en", tuple(alignment_blocks(alignment, curve, reference)))


def case_report(manifest: Manifest, folder: Path, contents: Contents | None = None) -> Document:
    return Document("en", tuple(case_blocks(manifest, folder, contents or {})))


def comparison_report(found: Comparison, lang: Lang = "en") -> Document:
    return Document(lang, tuple(comparison_blocks(found, lang)))


def comparison_web_page(found: Comparison, lang: Lang = "en") -> Document:
    return Document(
        lang, tuple(comparison_page(found, lang)), say("compare_heading", lang, case=found.sides[0].case.name)
    )


def repeats_report(groups: Mapping[str, Sequence[Run]]) -> Document:
    """By the name of the group, or of its arms."""
    return Document("en", tuple(block for name, runs in groups.items() for block in repeats(runs, "en", name)))
