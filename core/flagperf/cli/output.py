"""Everything that commands print goes through here, so that no text of a bundle, a tool or an argument reaches the
terminal as an escape sequence.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from flagperf.report.document import Document
from flagperf.report.terminal import fitted, to_terminal
from flagperf.text import one_line, safe_json, visible

LONGEST_WORD = 400

LONGEST_MESSAGE = 4000
"""In characters. A path or an argument beyond that is cut in messages: its middle tells nobody anything."""

_OWN_STYLES = re.compile("(\x1b\\[[0-9]{1,2}m)")
"""What `report.terminal` writes around a text."""


def echo(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(one_line(text), err=err)


def echo_heading(text: str) -> None:
    click.echo()
    echo(text)


def echo_text(text: str, *, err: bool = False) -> None:
    """Print several lines, with their line ends."""
    click.echo(_visible_lines(text), nl=False, err=err)


def echo_styled(text: str, color: bool) -> None:
    """Print the lines of a rendered document, with its styles if there is color."""
    parts = _OWN_STYLES.split(text) if color else [text]
    clean = [part if index % 2 else _visible_lines(part) for index, part in enumerate(parts)]  # every second is a style
    click.echo("".join(clean), nl=False, color=color)


def echo_json_text(text: bytes) -> None:
    click.echo(safe_json(text.decode()).encode())


def echo_path(path: Path) -> None:
    """Print a path as the system knows it, for `cd "$(...)"`; a terminal gets it without controls."""
    if sys.stdout.isatty():
        echo(str(path))
    else:
        click.echo(os.fsencode(path))


def echo_message(text: str) -> None:
    """Print an error or a note for people: one line on stderr, of readable length."""
    click.echo(shortened(one_line(text)), err=True)


def _visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def shortened(text: str) -> str:
    words = [_without_middle(word, LONGEST_WORD) for word in text.split(" ")]
    return _without_middle(" ".join(words), LONGEST_MESSAGE)


def _without_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head, tail = longest * 3 // 4, longest // 8
    return f"{text[:head]}...({len(text) - head - tail:,} characters)...{text[-tail:]}"


# Documents on the terminal: how wide it is, and whether it wants color.


PIPE_COLUMNS = 200
"""Lines that `grep` finds whole; COLUMNS=80 says otherwise, for a pager."""


def show(document: Document) -> None:
    color = wants_color()
    echo_styled(to_terminal(document, width=terminal_columns(), color=color), color)


def terminal_columns(in_pipe: int = PIPE_COLUMNS) -> int:
    """Return COLUMNS, else the width of the terminal that stdout is, else `in_pipe`."""
    given = os.environ.get("COLUMNS", "")  # as shutil does, whose import costs what reading all cases does
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or in_pipe  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return in_pipe


def wants_color() -> bool:
    """Tell whether to print colors. NO_COLOR goes before FORCE_COLOR; an empty one is ignored (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


# Plain columns that fit the terminal. Light: `cases list` and the like import no renderer.


UNLIMITED_COLUMNS = 10_000
"""In a pipe a row is one line, whatever its length, unless COLUMNS is set."""


def echo_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in fitted([[*map(one_line, row)] for row in (header, *rows)], terminal_columns(UNLIMITED_COLUMNS)):
        echo(line)
