"""How a fleet waits. A test gives another clock, whose time passes when the test says so."""

from __future__ import annotations

import selectors
import time


class Waiting:
    """The clock of a fleet's limits, and what its loops wait with."""

    def now(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, after at most so many seconds."""
        return selector.select(seconds)
