"""RowTable: the rows that a rank has measured so far, and how further ones are timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from flagperf.api import DeviceBackend
from flagperf.errors import Unsupported
from flagperf.events import RowMeasured, RowStatus
from flagperf.worker.rows import Alternative, measure_rows
from flagperf.worker.timer import Rules, Timer
from flagperf.worker.together import Nobody, Partners, Ranks
from flagperf.worker.turns import turns


class RowTable:
    def __init__(
        self,
        backend: DeviceBackend,
        torch_device: str,
        clock: Callable[[], int],
        rules: Rules | None,
        ranks: Ranks,
        write: Callable[[RowMeasured], None],
    ) -> None:
        self._backend = backend
        self._torch_device = torch_device
        self._clock = clock
        self._rules = rules
        self._ranks = ranks
        self._write = write
        self._statuses: set[RowStatus] = set()
        self._first_problem = ""
        self._turns = 0
        self._are_all_at_once = False
        """Every rank times the same rows now, each on its own device."""

    def add(self, row: RowMeasured) -> None:
        self._write(row)
        self._statuses.add(row.status)
        self._first_problem = self._first_problem or row.problem

    def time(
        self, name: str, alternatives: Sequence[Alternative], together: bool | Collection[int]
    ) -> list[RowMeasured]:
        if self._rules is None:
            raise RuntimeError("the case has no [values.measure], which says how long a row is timed")
        meet = self._ranks.meet if self._are_all_at_once else lambda: None
        timer = Timer(self._backend, self._clock, self._rules, self._partners(together), meet)
        rows = measure_rows(timer, self._backend, self._torch_device, name, alternatives, self._clock)
        if len(rows) > 1:
            self._turns += 1
            rows = [msgspec.structs.replace(row, turns=self._turns) for row in rows]
        for row in rows:
            self.add(row)
        return rows

    def turns(self, local_rank: int) -> Iterator[str]:
        for devices in turns(local_rank, self._ranks):
            self._are_all_at_once = devices == "all"
            yield devices
            self._are_all_at_once = False

    def _partners(self, together: bool | Collection[int]) -> Partners:
        if isinstance(together, bool):
            return self._ranks.all_together() if together else Nobody()
        return self._ranks.some_together(together)

    def check(self) -> None:
        """A case of rows without a single one that was measured has no result."""
        if not self._statuses or "ok" in self._statuses:
            return
        text = f"no row could be measured; the first: {self._first_problem}"
        raise Unsupported(text) if self._statuses == {"unsupported"} else RuntimeError(text)
