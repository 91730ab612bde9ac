"""Writes the second half of docs/cli.md from the commands' own help, so that the two cannot differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from flagperf.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
MARKER = "<!-- Written by `make docs` from here on. -->\n"


def render(hand_written: str) -> str:
    sections = [f"## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(cli, "flagperf")]
    return hand_written + MARKER + "\n" + "\n".join(sections)


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    # Not the width of whoever's terminal this runs in.
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100, **cli.context_settings)
    yield path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _helps(child, f"{path} {name}")


def hand_written_part(page: str) -> str:
    return page.partition(MARKER)[0]


if __name__ == "__main__":
    PAGE.write_text(render(hand_written_part(PAGE.read_text())))
