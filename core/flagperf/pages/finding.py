"""What `pages lint` says of a page."""

from __future__ import annotations

import msgspec

from flagperf.messages import Message, message
from flagperf.pages.cards import Card, Cards
from flagperf.pages.hardware import HardwarePage
from flagperf.pages.results import ResultPage, ResultRow
from flagperf.plausibility.rules import Rule
from flagperf.spec import Manifest


class PageFinding(msgspec.Struct, frozen=True):
    rule: str
    """The name of one (flagperf.plausibility)."""
    line: int
    message: Message


class Recomputed(msgspec.Struct, frozen=True):
    """A cell that holds: it follows from others."""

    cell: str
    line: int
    message: Message


class ResultContext(msgspec.Struct, frozen=True):
    """A page of results with what is known of its case and cards."""

    page: ResultPage
    manifest: Manifest | None
    cards: Cards

    def cards_of(self, row: ResultRow) -> list[Card]:
        """Those that the row may mean, narrowed by what the page says of its card."""
        of_page = self.cards.cards_of(self.page.source)
        of_row = self.cards.cards_in(row.configuration.device) if row.configuration else []
        both = [card for card in of_row if card in of_page]
        return both or of_row or of_page

    def precision_of(self, row: ResultRow) -> str:
        stated = self.page.stated("precision")
        return (row.said_precision or (stated.value if stated and not stated.column else "")).lower()

    def devices_of(self, row: ResultRow) -> int | None:
        """By the row's shape, else by the parallel layout of the case's published configuration."""
        if row.configuration is not None:
            return row.configuration.cards
        parallel = self.manifest.values.get("parallel") if self.manifest else None
        if not isinstance(parallel, dict):
            return None
        return int(parallel.get("tp", 1)) * int(parallel.get("pp", 1)) * int(parallel.get("dp", 1))


class HardwareContext(msgspec.Struct, frozen=True):
    page: HardwarePage
    found: tuple[Card, ...]
    """The cards that the page names."""
    cards: Cards

    def peak(self, row: str) -> float | None:
        """Of its cards, if all that are known agree."""
        peaks = {card.peaks[row] for card in self.found if row in card.peaks}
        return peaks.pop() if len(peaks) == 1 else None


def finding(rule: Rule, line: int, code: str, /, **params: object) -> PageFinding:
    return PageFinding(rule.name, line, message(code, **params))
