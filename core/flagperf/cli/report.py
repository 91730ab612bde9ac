"""flagperf report"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, cast

import click

from flagperf.cli.complete import complete_run
from flagperf.cli.holds import warn_unless_it_holds
from flagperf.cli.options import common, runs_dir_option, wants_color
from flagperf.errors import BadInput
from flagperf.report import page, print_summary_table, summary_table, to_json
from flagperf.store import find_run, read_bundle, runs_directory


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--format", "form", type=click.Choice(["table", "md", "json"]), help="[default: table]")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of md.")
@click.option("--allow-simulated", is_flag=True, help="Let md print runs that were simulated, marked as such.")
@runs_dir_option
@common
def report(
    runs: tuple[str, ...], form: str | None, lang: str, allow_simulated: bool, runs_dir: str | None, as_json: bool
) -> None:
    """Print runs as a table, as the page that this field publishes, or as JSON."""
    form = _form(form, lang, as_json)
    directory = runs_directory(runs_dir)
    paths = _different([find_run(run, directory) for run in runs])
    recorded = [read_bundle(path) for path in paths]
    for path in paths:
        warn_unless_it_holds(path)
    if form == "json":
        click.echo(to_json(recorded))
    elif form == "md":
        language = cast(Literal["en", "zh"], lang)
        click.echo(page(recorded, language, allow_simulated=allow_simulated), nl=False)
    else:
        print_summary_table(summary_table(recorded), color=wants_color(), file=sys.stdout)


def _different(paths: list[Path]) -> list[Path]:
    """A run that is named twice is one row."""
    return list({path.resolve(): path for path in paths}.values())


def _form(asked: str | None, lang: str, as_json: bool) -> str:
    """Table, md or json. What contradicts itself is refused: an option that is passed over would mislead."""
    if as_json and asked not in (None, "json"):
        raise BadInput(f"--json and --format {asked} ask for two different things; give one of them")
    form = asked or ("json" if as_json else "table")
    if lang != "en" and form != "md":
        raise BadInput(f"--lang {lang} is for pages: --format md has them, --format {form} is in English alone")
    return form
