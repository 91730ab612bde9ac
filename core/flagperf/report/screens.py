"""The documents that commands show. A command shows one of them, and imports what that consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.messages import Lang
from flagperf.report.document import Document

if TYPE_CHECKING:
    from flagperf.bundle.run_record import RecordedRun, Run
    from flagperf.compare.comparison import Comparison
    from flagperf.metrics.alignment import Alignment, LossCurve
    from flagperf.report.sections.case_blocks import Contents
    from flagperf.spec.manifest import Manifest


def run_report(runs: Sequence[RecordedRun], *, published: bool | None = None) -> Document:
    """Show the overview of a single run, or a table of several runs."""
    if len(runs) == 1:
        from flagperf.report.sections.overview import overview

        return Document("en", tuple(overview(runs[0], published=published)))
    from flagperf.report.sections.run_table import comparison

    return Document("en", tuple(comparison(runs, published=published)))


def alignment_report(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Document:
    from flagperf.report.sections.alignment_blocks import alignment_blocks

    return Document("en", tuple(alignment_blocks(alignment, curve, reference)))


def case_report(manifest: Manifest, folder: Path, contents: Contents | None = None) -> Document:
    from flagperf.report.sections.case_blocks import case_blocks

    return Document("en", tuple(case_blocks(manifest, folder, contents or {})))


def comparison_report(found: Comparison, lang: Lang = "en") -> Document:
    from flagperf.report.sections.comparison_blocks import comparison_blocks

    return Document(lang, tuple(comparison_blocks(found, lang)))


def repeats_report(groups: Mapping[str, Sequence[Run]]) -> Document:
    """Show what the runs of each group say together; the groups are named, or their arms."""
    from flagperf.report.sections.run_table import repeats

    return Document("en", tuple(block for name, runs in groups.items() for block in repeats(runs, "en", name)))
