"""How a running run looks on one screen. rich is imported by the functions that draw: other commands stay fast."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flagperf.cli.columns import GAP
from flagperf.cli.progress import eta, evaluation_text, excess_of_slowest, power_text
from flagperf.cli.terminal import terminal_columns, wants_color
from flagperf.escapes import one_line
from flagperf.kinds import KINDS
from flagperf.store.run import EXIT_CODES
from flagperf.store.watched import RankNow, RunNow
from flagperf.units import loss as loss_text
from flagperf.units import memory_cell, milliseconds, per_second, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BAR_COLUMNS = 24
LEAST_BESIDE_BAR = 60
"""Columns of a screen. On a narrower one, the words are below the bar."""

LINES_AROUND_RANKS = 4
"""Below the figures: the heads of the table, how many ranks are left out, and how to leave."""

STYLES = {"running": "green", "succeeded": "green", "killed": "red", "unknown": "yellow"}
LEAVE = "q leaves, the run goes on"

Cell = Callable[[RankNow], str]


def paint(now: RunNow) -> None:
    """Once, below what is on the terminal; in a pipe without styles, with all ranks."""
    console = _console()
    console.print(_screen(now, console, is_live=False))


@contextlib.contextmanager
def draw() -> Iterator[Callable[[RunNow], None]]:
    """A screen of its own, which is gone afterwards."""
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

    parts = [_title(now), _identity(now), _text(""), *_progress(now, console.width), *_figures(now), _text("")]
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


def _title(now: RunNow) -> Any:
    about = f"{now.case} {now.profile}, {now.vendor} {now.device}, {now.shape}, {now.precision}"
    where = f" on {one_line(now.host)}" if now.host else ""
    line = _text(about, "bold").append(GAP)
    line.append(one_line(now.status), STYLES.get(now.status, "red" if now.status in EXIT_CODES else ""))
    return line.append(f"{where}, {seconds(now.elapsed_seconds)}")


def _identity(now: RunNow) -> Any:
    return _text(now.id, "dim")


def _progress(now: RunNow, width: int) -> Iterator[Any]:
    """How far it is. Before the first step: what it does."""
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
        words.append(f"{per_second(now.samples_per_second)} samples/s")
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
    """What fits: those that stand out first (ended, waiting, the slowest, the fullest), then by number."""
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

    shown = _fitting(now, rows, width)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for head, (_, justify, _) in shown.items():
        table.add_column(_text(head, "bold"), justify=justify, no_wrap=True, overflow="ellipsis")
    excess = excess_of_slowest(now.slowest, now.median_step_seconds)
    for row in rows:
        is_slow = excess is not None and now.slowest is not None and row.rank == now.slowest.rank
        style = "red" if row.phase in EXIT_CODES and row.phase != "succeeded" else "yellow" if is_slow else ""
        table.add_row(*(_text(cell(row)) for cell, _, _ in shown.values()), style=style)
    return table


def _fitting(now: RunNow, rows: Sequence[RankNow], width: int) -> dict[str, tuple[Cell, Any, int]]:
    """Columns that have something to say; where there is no room for all, the least important are left out."""
    shown = {
        head: column for head, column in _columns(now).items() if head == "RANK" or any(column[0](row) for row in rows)
    }
    while len(shown) > 1 and _width(shown, rows) > width:
        shown.pop(max(shown, key=lambda head: shown[head][2]))
    return shown


def _width(shown: dict[str, tuple[Cell, Any, int]], rows: Sequence[RankNow]) -> int:
    widest = (max(len(head), *(len(one_line(cell(row))) for row in rows)) for head, (cell, _, _) in shown.items())
    return sum(widest) + len(GAP) * len(shown)


def _columns(now: RunNow) -> dict[str, tuple[Cell, Any, int]]:
    """Head -> text, side, and its place when room is short: the highest goes first."""
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
