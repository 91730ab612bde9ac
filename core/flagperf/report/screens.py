"""The documents that commands show. Published pages are in page.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.compare.comparison import Comparison
from flagperf.messages import Lang
from flagperf.metrics.alignment import Alignment, LossCurve
from flagperf.report.document import Document
from flagperf.report.sections.alignment_blocks import alignment_blocks
from flagperf.report.sections.case_blocks import Contents, case_blocks
from flagperf.report.sections.comparison_blocks import comparison_blocks
from flagperf.report.sections.overview import overview
from flagperf.report.sections.run_table import comparison, repeats
from flagperf.spec.manifest import Manifest


def run_report(runs: Sequence[RecordedRun], *, published: bool | None = None) -> Document:
    """Show the overview of a single run, or a table of several runs."""
    blocks = overview(runs[0], published=published) if len(runs) == 1 else comparison(runs, published=published)
    return Document("en", tuple(blocks))


def alignment_report(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Document:
    return Document("en", tuple(alignment_blocks(alignment, curve, reference)))


def case_report(manifest: Manifest, folder: Path, contents: Contents | None = None) -> Document:
    return Document("en", tuple(case_blocks(manifest, folder, contents or {})))


def comparison_report(found: Comparison, lang: Lang = "en") -> Document:
    return Document(lang, tuple(comparison_blocks(found, lang)))


def repeats_report(groups: Mapping[str, Sequence[Run]]) -> Document:
    """By the name of the group, or of its arms."""
    return Document("en", tuple(block for name, runs in groups.items() for block in repeats(runs, "en", name)))
