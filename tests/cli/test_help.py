"""What --help prints, and the page that is made of it."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from write_cli_docs import PAGE, hand_written_part, render

from flagperf.cli import COMMANDS, cli


@pytest.mark.parametrize("group", [[], ["cases"], ["vendors"], ["runs"]])
def test_summaries_are_whole_at_80_columns(group: list[str]) -> None:
    done = CliRunner().invoke(cli, [*group, "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert "..." not in done.output.replace("[ARGS]...", "")
    assert max(len(line) for line in done.output.splitlines()) <= 80


def test_a_group_without_a_command_shows_its_help() -> None:
    done = CliRunner().invoke(cli, ["runs"])
    assert done.output.startswith("Usage:") and "verify" in done.output


def test_the_table_of_commands_says_what_they_say() -> None:
    context = click.Context(cli)
    for name, (_, summary) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None and summary == command.get_short_help_str(10_000), name


def test_docs_say_what_help_says() -> None:
    page = PAGE.read_text()
    assert page == render(hand_written_part(page)), "run `make docs`"
