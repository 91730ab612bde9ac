"""click's errors in the form of all others: `flagperf: what is wrong; what to do`."""

from __future__ import annotations

import click

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, unknown_name


def as_bad_input(error: click.ClickException) -> BadInput:
    """The message ends with the command whose help says more."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return BadInput(_plain(error.format_message()))
    if isinstance(error, click.NoSuchOption):
        return unknown_name("option", error.option_name, _options(ctx), f"({see_help(ctx)})")
    return BadInput(f"{_what_is_wrong(error)}; {see_help(ctx)}")


def see_help(ctx: click.Context) -> str:
    commands = ctx.command_path.split()[1:]
    return f"see `{flagperf_command(*commands, '--help')}`"


def _what_is_wrong(error: click.ClickException) -> str:
    """With the parameter as the user types it, first."""
    parameter = error.param if isinstance(error, click.BadParameter) else None
    if parameter is None:
        return _plain(error.format_message())
    name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(error, click.MissingParameter):
        return f"{parameter.param_type_name} {name} is missing"
    return f"{name}: {_plain(error.message)}"


def _options(ctx: click.Context) -> list[str]:
    parameters = [each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option)]
    return [name for each in parameters for name in (*each.opts, *each.secondary_opts)]


def _plain(message: str) -> str:
    """As the middle of a sentence."""
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:]
