"""`flagperf runs watch`: looks at a run, at most once a second, until it is over or the user leaves."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from flagperf.cli.options import echo_json, note
from flagperf.cli.output import echo
from flagperf.cli.progress import PLAIN_LINE_SECONDS, describe
from flagperf.cli.watch_screen import draw, paint
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.launch import raise_on_signals
from flagperf.spec import Progress
from flagperf.store.listing import find_latest, find_run, unfinished_runs
from flagperf.store.run import EXIT_CODES
from flagperf.store.watched import RunNow, WatchedRun

LOOK_SECONDS = 1.0
PAUSE_FACTOR = 10
"""A look that takes long, at the files of thousands of ranks, is followed by a pause of so many times as long."""

KILLED_EXIT_CODE = 3
_LEAVE_KEYS = b"qQ\x03\x04"


def running_run(runs_dir: Path) -> Path:
    """The one that is running. Raises BadInput where there is none, or several."""
    running = [line.id for line in unfinished_runs(runs_dir) if line.status == "running"]
    if len(running) == 1:
        return find_run(running[0], runs_dir)
    if running:
        raise BadInput(f"{len(running)} runs are running in {runs_dir}; say which: {', '.join(running)}")
    latest = find_latest(runs_dir).path.name  # or that there are no runs at all
    raise BadInput(f"no run is running in {runs_dir}; the latest that has finished is {latest}")


def watch(bundle: Path, *, once: bool, as_json: bool) -> int:
    """The exit code: the run's own once it is over, 0 if the user leaves before that."""
    watched = WatchedRun(bundle)
    now = watched.look()
    if as_json:
        echo_json(now)
        return _exit_code(now)
    if now.is_over:
        return _say_over(now)
    if once:
        paint(now)
        return 0
    raise_on_signals()
    try:
        return _follow_on_screen(watched) if sys.stdout.isatty() else _follow_in_lines(watched)
    except KeyboardInterrupt:
        return _leave(now)


def _follow_on_screen(watched: WatchedRun) -> int:
    with _keys(), draw() as show:
        while True:
            began = time.monotonic()
            now = watched.look()
            show(now)
            if now.is_over or _is_left(_pause(began)):
                break
    return _say_over(now) if now.is_over else _leave(now)


def _follow_in_lines(watched: WatchedRun) -> int:
    """A line now and then, for as long as somebody reads them."""
    due = 0.0
    while True:
        began = time.monotonic()
        now = watched.look()
        if now.is_over:
            return _say_over(now)
        if began >= due:
            due = began + PLAIN_LINE_SECONDS
            echo(f"{now.status}  {describe(_as_progress(now), KINDS[now.kind])}")
        if not _has_reader():
            return 0
        time.sleep(_pause(began))


def _pause(began: float) -> float:
    return max(LOOK_SECONDS, PAUSE_FACTOR * (time.monotonic() - began))


def _as_progress(now: RunNow) -> Progress:
    """As `flagperf run` shows it."""
    return Progress(
        step=now.step,
        planned_steps=now.planned_steps,
        samples_per_second=now.samples_per_second,
        loss=now.loss,
        used_bytes=max((rank.used_bytes for rank in now.ranks if rank.used_bytes), default=None),
        seconds_left=now.seconds_left,
        phase=now.phase,
        evaluation=now.evaluation,
        power_watts=now.power_watts,
        median_step_seconds=now.median_step_seconds,
        slowest=now.slowest,
    )


def _say_over(now: RunNow) -> int:
    how = "was killed" if now.status == "killed" else f"has ended: {now.status}"
    echo(f"{now.id} {how}")
    note(f"next: {flagperf_command('runs', 'show', now.id)}")
    return _exit_code(now)


def _leave(now: RunNow) -> int:
    note(f"left; the run goes on; to look at it again: {flagperf_command('runs', 'watch', now.id)}")
    return 0


def _exit_code(now: RunNow) -> int:
    if not now.is_over:
        return 0
    return next((code for status, code in EXIT_CODES.items() if status == now.status), KILLED_EXIT_CODE)


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive one by one, without Enter."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_left(seconds: float) -> bool:
    """Waits so long for a key that means it."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            keys = os.read(sys.stdin.fileno(), 64)
            if not keys or any(key in _LEAVE_KEYS for key in keys):
                return True
    return False


def _has_reader() -> bool:
    """Whether somebody still reads a pipe that stdout is: writing there never fails."""
    poll = select.poll()
    poll.register(1, 0)
    return not poll.poll(0)
