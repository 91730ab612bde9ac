"""flagperf schema"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from flagperf.cli.completers import complete_case, complete_schema
from flagperf.cli.options import common, echo_json
from flagperf.cli.output import echo_columns, echo_text
from flagperf.errors import BadInput
from flagperf.plugins.installed import load_plugins
from flagperf.schemas import SCHEMAS, make_schema


@click.command()
@click.argument("name", required=False, shell_complete=complete_schema)
@click.option("--list", "list_all", is_flag=True, help="List the schemas.")
@click.option("--case", metavar="CASE", shell_complete=complete_case, help="For `tuning`: with the keys of this case.")
@common
def schema(name: str | None, list_all: bool, case: str | None, as_json: bool) -> None:
    """Print the JSON schema of a file (draft 2020-12), for editors and validators.

    An editor that knows TOML schemas completes and checks a file whose first line names one, such as
    `#:schema ./case.schema.json` after `flagperf schema case > case.schema.json`.
    """
    if list_all == (name is not None):
        raise BadInput(f"give the name of one schema, or --list; known: {', '.join(SCHEMAS)}")
    if name is not None:
        echo_json(make_schema(name, load_plugins(), case))
    elif as_json:
        echo_json([{"name": known, "file": entry.file, "about": entry.about} for known, entry in SCHEMAS.items()])
    else:
        echo_columns(
            ["SCHEMA", "FILE", "ABOUT"], [[known, entry.file, entry.about] for known, entry in SCHEMAS.items()]
        )


# flagperf completion


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
