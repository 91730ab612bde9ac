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
from flagperf.escapes import one_line
from flagperf.kinds import Kind
from flagperf.launch import OnProgress
from flagperf.spec import EvaluationProgress, Progress
from flagperf.units import gib, per_second, seconds
from flagperf.units import loss as loss_text

PLAIN_LINE_SECONDS = 5.0


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
        return "  ".join([*parts, _evaluation_text(progress.evaluation)])
    if progress.samples_per_second is not None:
        parts.append(f"{per_second(progress.samples_per_second)} samples/s")
    if progress.loss is not None:
        parts.append(f"loss {loss_text(progress.loss)}")
    if progress.used_bytes is not None:
        parts.append(f"mem {gib(progress.used_bytes)} GiB")
    if progress.seconds_left is not None:
        parts.append(_eta(progress.seconds_left))  # at most: a case may stop once it reaches its target
    return "  ".join(parts)


def _evaluation_text(evaluation: EvaluationProgress) -> str:
    done = f"evaluation {evaluation.rows}/{evaluation.planned_rows} rows"
    speed = f"{per_second(evaluation.rows_per_second)} rows/s"
    return f"{done}  {speed}  {_eta(evaluation.seconds_left)}"


def _eta(seconds_left: float) -> str:
    """Whole seconds: an estimate has no tenths."""
    return f"ETA {seconds_left:.0f} s" if seconds_left < 59.5 else f"ETA {seconds(seconds_left)}"


class CombinedProgress:
    """The last progress of every node as one: step and phase are those of the first node."""

    def __init__(self) -> None:
        self._by_node: dict[int, Progress] = {}

    def update(self, node_index: int, progress: Progress) -> Progress:
        self._by_node[node_index] = progress
        nodes = [self._by_node[index] for index in sorted(self._by_node)]
        speeds = [node.samples_per_second for node in nodes if node.samples_per_second is not None]
        return msgspec.structs.replace(
            nodes[0],
            samples_per_second=sum(speeds) if speeds else None,
            loss=next((node.loss for node in nodes if node.loss is not None), None),
            used_bytes=max((node.used_bytes for node in nodes if node.used_bytes is not None), default=None),
        )


def _plain_lines(kind: Kind) -> OnProgress:
    last = -PLAIN_LINE_SECONDS
    nodes = CombinedProgress()

    def update(node_index: int, progress: Progress) -> None:
        nonlocal last
        shown = nodes.update(node_index, progress)
        is_known = shown.step or shown.evaluation
        if is_known and time.monotonic() - last >= PLAIN_LINE_SECONDS:
            last = time.monotonic()
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
        self._nodes = CombinedProgress()
        self._rich.start()
        self._task = self._rich.add_task("starting", total=None)
        return self

    def update(self, node_index: int, progress: Progress) -> None:
        shown = self._nodes.update(node_index, progress)
        self._rich.update(
            self._task, total=shown.planned_steps, completed=shown.step, description=describe(shown, self._kind)
        )

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
