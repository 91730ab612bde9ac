"""The documents that commands show on the terminal. Published pages are in page.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flagperf.metrics import Alignment, LossCurve
from flagperf.report.document import Document
from flagperf.report.sections.alignment import alignment_blocks
from flagperf.report.sections.card import card
from flagperf.report.sections.case import case_blocks
from flagperf.report.sections.comparison import comparison
from flagperf.spec import Manifest
from flagperf.store.run import RecordedRun


def run_report(runs: Sequence[RecordedRun], *, published: bool = True) -> Document:
    """The card of a single run, or a table of several runs."""
    blocks = card(runs[0], published=published) if len(runs) == 1 else comparison(runs, published=published)
    return Document("en", tuple(blocks))


def alignment_report(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Document:
    return Document("en", tuple(alignment_blocks(alignment, curve, reference)))


def case_report(manifest: Manifest, folder: Path) -> Document:
    return Document("en", tuple(case_blocks(manifest, folder)))
