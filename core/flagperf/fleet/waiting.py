"""How a fleet waits. A test gives one whose time passes when it says so."""

from __future__ import annotations

import selectors
import time


class Waiting:
    """The clock by which a fleet's limits are kept, and what its loops wait with."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after at most so many seconds."""
        return selector.select(seconds)
