"""Everything that commands print goes through here, so that no text of a bundle, a tool or an argument reaches the
terminal as an escape sequence."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from flagperf.escapes import one_line, safe_json, visible

LONGEST_WORD = 400
LONGEST_MESSAGE = 4000
"""In characters. A path or an argument beyond that is cut in messages: its middle tells nobody anything."""

_OWN_STYLES = re.compile("(\x1b\\[[0-9]{1,2}m)")
"""What `report.render.grid` writes around a text."""


def echo(text: str, *, err: bool = False) -> None:
    """One line."""
    click.echo(one_line(text), err=err)


def echo_heading(text: str) -> None:
    click.echo()
    echo(text)


def echo_text(text: str, *, err: bool = False) -> None:
    """Several lines, with their line ends."""
    click.echo(_visible_lines(text), nl=False, err=err)


def echo_styled(text: str, color: bool) -> None:
    """Several lines of a rendered document, with its styles where there is color."""
    parts = _OWN_STYLES.split(text) if color else [text]
    clean = [part if index % 2 else _visible_lines(part) for index, part in enumerate(parts)]  # every second is a style
    click.echo("".join(clean), nl=False, color=color)


def echo_json_text(text: bytes) -> None:
    click.echo(safe_json(text.decode()).encode())


def echo_path(path: Path) -> None:
    """As the system knows it, for `cd "$(...)"`; a terminal gets it without controls."""
    if sys.stdout.isatty():
        echo(str(path))
    else:
        click.echo(os.fsencode(path))


def echo_message(text: str) -> None:
    """An error or a note, for people: one line on stderr, of readable length."""
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
