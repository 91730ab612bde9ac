"""How far a run is, from the growing files of a node's ranks and probe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from flagperf.api import Device
from flagperf.robust import median
from flagperf.spec import Progress, RankPace
from flagperf.store.live_cards import CardFigures
from flagperf.store.live_ranks import RankSteps, common_paces


class ProgressFollower:
    """Follows the ranks of a node and its probe. Steps are those of its first rank."""

    def __init__(
        self, events: Sequence[Path], samples: Path, devices: Sequence[Device] = (), first_rank: int = 0
    ) -> None:
        self._ranks = [RankSteps(path) for path in events]
        self._first_rank = first_rank
        self._cards = CardFigures(samples, devices)
        self._shown: tuple[int | None, float | None] = (None, None)

    def poll(self) -> Progress | None:
        """The new state, or None where nothing has changed."""
        num_new = sum(len(rank.new_events()) for rank in self._ranks)
        self._cards.read()
        figures = self._cards.used_bytes, self._cards.power_watts
        if not num_new and figures == self._shown:
            return None
        self._shown = figures
        return self._progress()

    def _progress(self) -> Progress:
        first = self._ranks[0]
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        used_bytes, power_watts = self._shown
        paces = [RankPace(self._first_rank + index, each) for index, each in common_paces(self._ranks).items()]
        return Progress(
            step=first.num_done,
            planned_steps=first.planned_steps,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            used_bytes=used_bytes,
            seconds_left=first.seconds_left((time.monotonic_ns() - first.last_ns) / 1e9),
            phase=first.phase,
            evaluation=first.evaluation,
            power_watts=power_watts,
            median_step_seconds=median(pace.step_seconds for pace in paces) if paces else None,
            slowest=max(paces, key=lambda pace: pace.step_seconds) if paces else None,
        )
