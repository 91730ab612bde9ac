"""Live progress on stderr: a bar on a terminal, a line now and then in a pipe, nothing with -q."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from flagperf.cli.options import is_quiet
from flagperf.launch import OnProgress
from flagperf.spec import Progress
from flagperf.units import gib, seconds
from flagperf.units import loss as loss_text

PLAIN_LINE_SECONDS = 5.0


@contextlib.contextmanager
def live_progress() -> Iterator[OnProgress]:
    if is_quiet():
        yield lambda _node, _progress: None
    elif sys.stderr.isatty():
        with _Bar() as bar:
            yield bar.update
    else:
        yield _plain_lines()


def describe(progress: Progress) -> str:
    parts = [progress.phase if progress.step == 0 else f"step {progress.step}/{progress.planned_steps or '?'}"]
    if progress.samples_per_second is not None:
        parts.append(f"{progress.samples_per_second:.1f} samples/s")
    if progress.loss is not None:
        parts.append(f"loss {loss_text(progress.loss)}")
    if progress.used_bytes is not None:
        parts.append(f"mem {gib(progress.used_bytes)} GiB")
    if progress.seconds_left is not None:
        parts.append(f"at most {seconds(progress.seconds_left)} left")  # a case may stop once it reaches its target
    return "  ".join(parts)


def _plain_lines() -> OnProgress:
    last = -PLAIN_LINE_SECONDS

    def update(node_index: int, progress: Progress) -> None:
        nonlocal last
        if node_index == 0 and progress.step and time.monotonic() - last >= PLAIN_LINE_SECONDS:
            last = time.monotonic()
            click.echo(describe(progress), err=True)

    return update


class _Bar:
    """rich is imported here and in run tables only: list commands stay fast."""

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._rich: Any = RichProgress(
            SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._rich.start()
        self._task = self._rich.add_task("starting", total=None)
        return self

    def update(self, node_index: int, progress: Progress) -> None:
        if node_index == 0:
            self._rich.update(
                self._task, total=progress.planned_steps, completed=progress.step, description=describe(progress)
            )

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
