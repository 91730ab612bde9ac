"""What a cluster says about nodes that were lost."""

from __future__ import annotations

from collections.abc import Callable

from flagperf.api import Allocation
from flagperf.errors import FlagPerfError

EXPLAIN_SECONDS = 5.0
"""Once so much time was spent on questions, the cluster is asked no more: many nodes that are lost at once do not delay
the end."""


class Explanations:
    def __init__(self, allocation: Allocation, clock: Callable[[], float]) -> None:
        self._allocation, self._clock = allocation, clock
        self._said: dict[int, str] = {}
        self._seconds = 0.0

    def of(self, index: int) -> str:
        """A sentence, or empty; what was said before, where the cluster was asked long enough."""
        if self._seconds < EXPLAIN_SECONDS:
            began = self._clock()
            try:
                self._said[index] = self._allocation.explain(self._allocation.nodes[index])
            except FlagPerfError as error:
                self._said[index] = str(error)
            self._seconds += self._clock() - began
        return self._said.get(index, "")
