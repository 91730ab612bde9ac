"""Live progress on stderr: a bar on a terminal, a line every few seconds in a pipe, nothing with -q."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from flagperf.cli.options import is_quiet
from flagperf.cli.output import echo
from flagperf.fleet.supervision import OnProgress
from flagperf.kinds import Kind
from flagperf.spec.protocol import EvaluationProgress, Progress, RankPace
from flagperf.stats import median
from flagperf.text import one_line
from flagperf.units import gib, per_second, seconds
from flagperf.units import loss as loss_text

PLAIN_LINE_SECONDS = 5.0
BAR_SECONDS = 0.2

SLOW_SHARE = 0.1
"""The slowest rank is named if its steps take this much longer than those of the median rank. Below that, an average
over the last steps says little."""


@contextlib.contextmanager
def live_progress(kind: Kind) -> Iterator[OnProgress]:
    if is_quiet():
        yield lambda _node, _progress: None
    elif sys.stderr.isatty():
        with _Bar(kind) as bar:
            yield bar.update
    else:
        yield _plain_lines(kind)


def describe(progress: Progress, kind: Kind) -> str:
    parts = [
        one_line(progress.phase)
        if progress.step == 0
        else f"{kind.step} {progress.step}/{progress.planned_steps or '?'}"
    ]
    if progress.evaluation is not None:
        return "  ".join([*parts, evaluation_text(progress.evaluation)])
    if progress.samples_per_second is not None:
        parts.append(f"{per_second(progress.samples_per_second)} {kind.work}/s")
    if progress.loss is not None:
        parts.append(f"loss {loss_text(progress.loss)}")
    if progress.used_bytes is not None:
        parts.append(f"mem {gib(progress.used_bytes)} GiB")
    if progress.power_watts is not None:
        parts.append(f"power {power_text(progress.power_watts)}")
    excess = excess_of_slowest(progress.slowest, progress.median_step_seconds)
    if progress.slowest is not None and excess is not None:
        parts.append(f"slowest rank {progress.slowest.rank} (+{excess:.0%})")
    if progress.seconds_left is not None:
        parts.append(eta(progress.seconds_left))  # at most: a case may stop once it reaches its target
    return "  ".join(parts)


def power_text(watts: float) -> str:
    return f"{watts:.0f} W" if watts < 10_000 else f"{watts / 1000:.1f} kW"


def excess_of_slowest(slowest: RankPace | None, median_seconds: float | None) -> float | None:
    """Return how much longer its steps take, as a share. None if that is little, as where ranks wait for each other."""
    if slowest is None or not median_seconds:
        return None
    excess = slowest.step_seconds / median_seconds - 1
    return excess if excess >= SLOW_SHARE else None


def evaluation_text(evaluation: EvaluationProgress) -> str:
    done = f"evaluation {evaluation.rows}/{evaluation.planned_rows} rows"
    speed = f"{per_second(evaluation.rows_per_second)} rows/s"
    return f"{done}  {speed}  {eta(evaluation.seconds_left)}"


def eta(seconds_left: float) -> str:
    """Print whole seconds: an estimate has no tenths."""
    return f"ETA {seconds_left:.0f} s" if seconds_left < 59.5 else f"ETA {seconds(seconds_left)}"


class CombinedProgress:
    """The last progress of every node, combined into one: step and phase are those of the first node."""

    def __init__(self) -> None:
        self._by_node: dict[int, Progress] = {}

    def update(self, node_index: int, progress: Progress) -> None:
        """Keep it for later; this is cheap, as a thousand nodes report every second."""
        self._by_node[node_index] = progress

    def combined(self) -> Progress:
        """Combine what has been reported. At least one node must have."""
        nodes = [self._by_node[index] for index in sorted(self._by_node)]
        speeds = [node.samples_per_second for node in nodes if node.samples_per_second is not None]
        watts = [node.power_watts for node in nodes if node.power_watts is not None]
        paces = [node.median_step_seconds for node in nodes if node.median_step_seconds is not None]
        slowest = [node.slowest for node in nodes if node.slowest is not None]
        return msgspec.structs.replace(
            nodes[0],
            samples_per_second=sum(speeds) if speeds else None,
            loss=next((node.loss for node in nodes if node.loss is not None), None),
            used_bytes=max((node.used_bytes for node in nodes if node.used_bytes is not None), default=None),
            power_watts=sum(watts) if len(watts) == len(nodes) else None,
            median_step_seconds=median(paces) if paces else None,
            slowest=max(slowest, key=lambda pace: pace.step_seconds, default=None),
        )


class _Due:
    """When the next text is due: what many nodes report is not put together for each report."""

    def __init__(self) -> None:
        self._at = 0.0

    def is_now(self) -> bool:
        return time.monotonic() >= self._at

    def again_in(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds


def _plain_lines(kind: Kind) -> OnProgress:
    nodes, due = CombinedProgress(), _Due()

    def update(node_index: int, progress: Progress) -> None:
        nodes.update(node_index, progress)
        if not due.is_now():
            return
        shown = nodes.combined()
        is_known = shown.step or shown.evaluation
        due.again_in(PLAIN_LINE_SECONDS if is_known else BAR_SECONDS)
        if is_known:
            echo(describe(shown, kind), err=True)

    return update


class _Bar:
    """rich is imported here and for run tables only: list commands stay fast."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._rich: Any = RichProgress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._nodes, self._due = CombinedProgress(), _Due()
        self._rich.start()
        self._task = self._rich.add_task("starting", total=None)
        return self

    def update(self, node_index: int, progress: Progress) -> None:
        self._nodes.update(node_index, progress)
        if not self._due.is_now():
            return
        self._due.again_in(BAR_SECONDS)
        shown = self._nodes.combined()
        self._rich.update(
            self._task, total=shown.planned_steps, completed=shown.step, description=describe(shown, self._kind)
        )

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
