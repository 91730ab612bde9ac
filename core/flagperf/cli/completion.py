"""flagperf completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from flagperf.cli.options import common, echo_json
from flagperf.cli.output import echo_text


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion(shell: str, as_json: bool) -> None:
    """Print a completion script for your shell, to be used as: eval "$(flagperf completion bash)"."""
    from flagperf.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "flagperf", "_FLAGPERF_COMPLETE").source()
    if as_json:
        echo_json({"shell": shell, "script": script})
    else:
        echo_text(script + "\n")
