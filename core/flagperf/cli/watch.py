"""`flagperf runs watch`: looks at a run, at most once a second, until it is over or the user leaves."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.bundle.listing import find_latest, find_run, unfinished_runs
from flagperf.bundle.live_run import RankNow, RunNow, WatchedRun
from flagperf.bundle.run_record import EXIT_CODES
from flagperf.cli.options import echo_json, note
from flagperf.cli.output import echo, terminal_columns, wants_color
from flagperf.cli.progress import PLAIN_LINE_SECONDS, describe, eta, evaluation_text, excess_of_slowest, power_text
from flagperf.errors import BadInput
from flagperf.fleet.signals import raise_on_signals
from flagperf.kinds import KINDS
from flagperf.report.terminal import GAP
from flagperf.spec.protocol import Progress
from flagperf.text import flagperf_command, one_line
from flagperf.units import loss as loss_text
from flagperf.units import memory_cell, milliseconds, per_second, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# How a running run looks on one screen. rich is imported by the functions that draw: other commands stay fast.


BAR_COLUMNS = 24

LEAST_BESIDE_BAR = 60
"""On a screen with fewer columns, the words are below the bar."""

LINES_AROUND_RANKS = 4
"""Lines below the figures: the heads of the table, how many ranks are left out, and how to leave."""

STYLES = {"running": "green", "succeeded": "green", "killed": "red", "unknown": "yellow"}

LEAVE = "q leaves, the run goes on"

Cell = Callable[[RankNow], str]


def paint(now: RunNow) -> None:
    """Print it once, below what is on the terminal; in a pipe without styles, with all ranks."""
    console = _console()
    console.print(_screen(now, console, is_live=False))


@contextlib.contextmanager
def draw() -> Iterator[Callable[[RunNow], None]]:
    """Yield a function that shows a run on a screen of its own, which is gone afterwards."""
    from rich.live import Live

    console = _console()
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:

        def show(now: RunNow) -> None:
            live.update(_screen(now, console, is_live=True), refresh=True)

        yield show


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else terminal_columns()
    return Console(width=width, highlight=False, markup=False, emoji=False, no_color=not wants_color())


def _screen(now: RunNow, console: Console, *, is_live: bool) -> RenderableType:
    from rich.console import Group

    title = _text(f"{now.case} {now.profile}, {now.vendor} {now.device}, {now.shape}, {now.precision}", "bold")
    style = STYLES.get(now.status, "red" if now.status in EXIT_CODES else "")
    title.append(GAP).append(one_line(now.status), style)
    title.append(f"{f' on {one_line(now.host)}' if now.host else ''}, {seconds(now.elapsed_seconds)}")
    parts = [title, _text(now.id, "dim"), _text(""), *_progress(now, console.width), *_figures(now), _text("")]
    num_lines = len(console.render_lines(Group(*parts))) + LINES_AROUND_RANKS
    rows, left_out = _chosen(now, max(1, console.height - num_lines) if is_live else len(now.ranks))
    parts.append(_table(now, rows, console.width))
    if left_out:
        parts.append(_text(_summary(left_out), "dim"))
    if is_live:
        parts += [_text(""), _text(LEAVE, "dim")]
    return Group(*parts)


def _text(words: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(one_line(words), style)


def _progress(now: RunNow, width: int) -> Iterator[Any]:
    """Yield lines that say how far it is, or what it does before the first step."""
    kind = KINDS[now.kind]
    step, words = kind.step, [kind.loop["en"] if now.phase == kind.name else now.phase]
    if now.step or now.planned_steps:
        words.append(f"{step} {now.step:,}/{'?' if now.planned_steps is None else format(now.planned_steps, ',')}")
    if now.seconds_left is not None:
        words.append(eta(now.seconds_left))
    line = _text(GAP.join(words))
    if not now.planned_steps:
        yield line
    elif width < LEAST_BESIDE_BAR:
        yield from (_bar(now.step, now.planned_steps, width // 2), line)
    else:
        yield _bar(now.step, now.planned_steps, BAR_COLUMNS, line)
    if now.evaluation is not None:
        yield _text(evaluation_text(now.evaluation))


def _bar(done: int, planned: int, width: int, *beside: Any) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    done = min(done, planned)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(ProgressBar(planned, done, width=width), _text(f"{done / planned:.0%}"), *beside)
    return grid


def _figures(now: RunNow) -> Iterator[Any]:
    words = []
    if now.median_step_seconds is not None:
        words.append(f"{KINDS[now.kind].step} time {_duration(now.median_step_seconds)}")
    if now.samples_per_second is not None:
        words.append(f"{per_second(now.samples_per_second)} {KINDS[now.kind].work}/s")
    if now.loss is not None:
        words.append(f"loss {loss_text(now.loss)}")
    if now.power_watts is not None:
        words.append(f"power {power_text(now.power_watts)}")
    line = _text(GAP.join(words))
    excess = excess_of_slowest(now.slowest, now.median_step_seconds)
    if now.slowest is not None and excess is not None and len(now.ranks) > 1:
        line.append(f"{GAP}slowest rank {now.slowest.rank} (+{excess:.0%})", "yellow")
    if line:
        yield line


def _duration(value: float) -> str:
    return f"{milliseconds(value)} ms" if value < 10 else seconds(value)


# --- ranks ----------------------------------------------------------------------------------------------------------


def _chosen(now: RunNow, num_rows: int) -> tuple[list[RankNow], list[RankNow]]:
    """Return the ranks that fit, and the others. Those that stand out come first (ended, waiting, the slowest, the
    fullest)."""
    if len(now.ranks) <= num_rows:
        return list(now.ranks), []
    usual = now.ranks[0].phase
    slowest = now.slowest.rank if now.slowest else -1
    fullest = max(now.ranks, key=lambda rank: rank.used_bytes or 0).rank

    def importance(rank: RankNow) -> tuple[bool, bool, int]:
        return rank.phase == usual, rank.rank not in (slowest, fullest), rank.rank

    ordered = sorted(now.ranks, key=importance)
    shown, left_out = ordered[: num_rows - 1], ordered[num_rows - 1 :]
    return sorted(shown, key=lambda rank: rank.rank), left_out


def _summary(left_out: Sequence[RankNow]) -> str:
    words = [f"and {len(left_out):,} more ranks"]
    spans = (
        ("step", [rank.step for rank in left_out], str),
        ("step time", [rank.step_seconds for rank in left_out], _duration),
        ("memory", [rank.used_bytes for rank in left_out], lambda value: f"{value / (1 << 30):.1f} GiB"),
    )
    for name, values, form in spans:
        known = [value for value in values if value is not None]
        if known:
            low, high = form(min(known)), form(max(known))
            words.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return ", ".join(words)


def _table(now: RunNow, rows: Sequence[RankNow], width: int) -> Any:
    from rich.table import Table

    shown = {name: each for name, each in _columns(now).items() if name == "RANK" or any(each[0](row) for row in rows)}
    while len(shown) > 1:  # without the least important columns where there is no room for all
        widest = (max(len(head), *(len(one_line(cell(row))) for row in rows)) for head, (cell, _, _) in shown.items())
        if sum(widest) + len(GAP) * len(shown) <= width:
            break
        shown.pop(max(shown, key=lambda head: shown[head][2]))
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for head, (_, justify, _) in shown.items():
        table.add_column(_text(head, "bold"), justify=justify, no_wrap=True, overflow="ellipsis")
    excess = excess_of_slowest(now.slowest, now.median_step_seconds)
    for row in rows:
        is_slow = excess is not None and now.slowest is not None and row.rank == now.slowest.rank
        style = "red" if row.phase in EXIT_CODES and row.phase != "succeeded" else "yellow" if is_slow else ""
        table.add_row(*(_text(cell(row)) for cell, _, _ in shown.values()), style=style)
    return table


def _columns(now: RunNow) -> dict[str, tuple[Cell, Any, int]]:
    """Return head -> text, side, and its place when room is short: the highest goes first."""
    step = KINDS[now.kind].step.upper()
    several = len({row.node for row in now.ranks}) > 1
    differ = any(row.phase != now.phase for row in now.ranks)
    return {
        "RANK": (lambda row: str(row.rank), "right", 0),
        "NODE": (lambda row: f"{row.node} {row.host}" if several else "", "left", 6),
        "DEVICE": (lambda row: f"{row.device} {row.device_id}" if row.device_id else row.device, "left", 7),
        "PHASE": (lambda row: row.phase if differ else "", "left", 3),
        step: (lambda row: f"{row.step:,}" if row.step else "", "right", 1),
        f"{step} TIME": (lambda row: "" if row.step_seconds is None else _duration(row.step_seconds), "right", 2),
        "LOSS": (lambda row: "" if row.loss is None else loss_text(row.loss), "right", 5),
        "MEMORY": (_memory, "right", 4),
        "POWER": (lambda row: "" if row.power_watts is None else power_text(row.power_watts), "right", 5),
        "BUSY": (lambda row: "" if row.utilisation_percent is None else f"{row.utilisation_percent:.0f}%", "right", 8),
        "TEMP": (lambda row: "" if row.temperature_celsius is None else f"{row.temperature_celsius:.0f} C", "right", 9),
    }


def _memory(row: RankNow) -> str:
    if row.used_bytes is None:
        return ""
    return f"{memory_cell(row.used_bytes, row.total_bytes)} GiB" if row.total_bytes else f"{row.used_bytes >> 30} GiB"


LOOK_SECONDS = 1.0

PAUSE_FACTOR = 10
"""After a look at the files of thousands of ranks, which takes long, it waits this many times as long."""

KILLED_EXIT_CODE = 3

_LEAVE_KEYS = b"qQ\x03\x04"


def running_run(runs_dir: Path) -> Path:
    """Return the run that is running. Raise BadInput if there is none, or several."""
    running = [line.id for line in unfinished_runs(runs_dir) if line.status == "running"]
    if len(running) == 1:
        return find_run(running[0], runs_dir)
    if running:
        raise BadInput(f"{len(running)} runs are running in {runs_dir}; say which: {', '.join(running)}")
    latest = find_latest(runs_dir).path.name  # or that there are no runs at all
    raise BadInput(f"no run is running in {runs_dir}; the latest that has finished is {latest}")


def watch(bundle: Path, *, once: bool, as_json: bool) -> int:
    """Show the run until it is over or the user leaves. Return its exit code, or 0 if the user leaves."""
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
        if not sys.stdout.isatty():
            return _follow_in_lines(watched)
        with _keys(), draw() as show:
            is_left = False
            while not (now.is_over or is_left):
                began = time.monotonic()
                now = watched.look()
                show(now)
                is_left = not now.is_over and _is_left(_pause(began))
        return _say_over(now) if now.is_over else _leave(now)
    except KeyboardInterrupt:
        return _leave(now)


def _follow_in_lines(watched: WatchedRun) -> int:
    """Print a line now and then, as `flagperf run` does, for as long as somebody reads them."""
    due = 0.0
    reader = select.poll()  # writing to a pipe that stdout is never fails, see `LastingStream`
    reader.register(1, 0)
    while True:
        began = time.monotonic()
        now = watched.look()
        if now.is_over:
            return _say_over(now)
        if began >= due:
            due = began + PLAIN_LINE_SECONDS
            progress = Progress(
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
            echo(f"{now.status}  {describe(progress, KINDS[now.kind])}")
        if reader.poll(0):  # it has left
            return 0
        time.sleep(_pause(began))


def _pause(began: float) -> float:
    return max(LOOK_SECONDS, PAUSE_FACTOR * (time.monotonic() - began))


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
    """Let keys arrive one by one, without Enter."""
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
    """Wait this long for a key that leaves. Return True as soon as there is one."""
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
