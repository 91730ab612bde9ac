"""flagperf report"""

from __future__ import annotations

import sys
from typing import Literal, cast

import click

from flagperf.cli.complete import complete_run
from flagperf.cli.holds import warn_unless_it_holds
from flagperf.cli.options import common, runs_dir_option, wants_color
from flagperf.report import page, print_summary_table, summary_table, to_json
from flagperf.store import find_run, read_bundle, runs_directory


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--format", "form", type=click.Choice(["table", "md", "json"]), default="table", show_default=True)
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of md.")
@click.option("--allow-simulated", is_flag=True, help="Let md print runs that were simulated, marked as such.")
@runs_dir_option
@common
def report(
    runs: tuple[str, ...], form: str, lang: str, allow_simulated: bool, runs_dir: str | None, as_json: bool
) -> None:
    """Print runs as a table, as the page that this field publishes, or as JSON."""
    directory = runs_directory(runs_dir)
    paths = [find_run(run, directory) for run in runs]
    recorded = [read_bundle(path) for path in paths]
    for path in paths:
        warn_unless_it_holds(path)
    if as_json or form == "json":
        click.echo(to_json(recorded))
    elif form == "md":
        language = cast(Literal["en", "zh"], lang)
        click.echo(page(recorded, language, allow_simulated=allow_simulated), nl=False)
    else:
        print_summary_table(summary_table(recorded), color=wants_color(), file=sys.stdout)
