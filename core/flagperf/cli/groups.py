"""Groups of commands: unknown commands come with near matches, and summaries are printed whole."""

from __future__ import annotations

from typing import Any

import click

_UNLIMITED = 10_000
"""Characters of a summary. click cuts it off at the width of the terminal; wrapping it is enough."""


class CommandGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        is_unknown = bool(args) and not args[0].startswith("-") and args[0] not in known
        if is_unknown and not ctx.resilient_parsing:
            from flagperf.cli.usage_errors import see_help
            from flagperf.errors import unknown_name

            raise unknown_name("command", args[0], known, f"({see_help(ctx)})")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if error.ctx is None and command is not None:  # some errors of click's parser do not name their command
                error.ctx = click.Context(command, parent=ctx, info_name=ctx.invoked_subcommand)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])

    def summary(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(_UNLIMITED) if command else ""
