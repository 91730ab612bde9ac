"""flagperf site"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import click

from flagperf.bundle.listing import bundle_paths, runs_directory
from flagperf.cli.completers import complete_folder, complete_run
from flagperf.cli.options import common, echo_json, find_bundle, find_run, find_several, note, runs_dir_option
from flagperf.cli.output import echo
from flagperf.errors import BadInput
from flagperf.messages import Lang
from flagperf.spec.manifest import Manifest
from flagperf.text import is_utf8
from flagperf_publish.commands.asked import distinct, open_page

PROGRESS_SECONDS = 5
MAX_NAMED = 20
"""So many runs of a kind are named; --json has all."""


@click.command()
@click.argument("out", metavar="OUT", shell_complete=complete_folder)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@click.option("--title", default="", metavar="TEXT", help="Title of the site [default: Leaderboard].")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of the site.")
@click.option("--open", "show_page", is_flag=True, help="Open the site in the browser.")
@click.option("--allow-simulated", is_flag=True, help="Also show simulated runs; they are marked.")
@click.option(
    "--published/--no-published",
    default=None,
    help="Show or leave out published results [default: on the board, and beside runs of a published profile].",
)
@runs_dir_option
@common
def site(
    out: str,
    runs: tuple[str, ...],
    title: str,
    lang: str,
    show_page: bool,
    allow_simulated: bool,
    published: bool | None,
    runs_dir: str | None,
    as_json: bool,
) -> int:
    """Show runs as a leaderboard: static pages in the folder OUT, to open from a disk or to put on a web server.

    RUN is a run (a path, a unique prefix of an id, or `latest`), several (RUN,RUN), a pattern of ids in quotes, the
    runs with a tag (tag:WORD), or a group that `run --repeat` made; without RUN, all runs of the folder. The board
    filters, sorts, and puts ticked rows side by side; published results stand beside the runs, with their source and a
    grade of provenance. Each run has its page, as `report --format html` writes it. See docs/leaderboard.md.

    Called again, it renders new and changed runs only, and removes those that are not named any more. It never touches
    a folder that is not such a site. Runs that are not finished, and simulated ones without --allow-simulated, are left
    out and named. The exit code is 2 if a run cannot be read or shown; the site then has the others.
    """
    from flagperf_publish.site.site_build import SiteWishes, build_site

    if not is_utf8(title):
        raise BadInput("--title is not UTF-8")
    directory = runs_directory(runs_dir)
    paths: list[Path] = []
    for word in runs:  # a damaged bundle that is named is left out with its reason, as the others that cannot be read
        is_there = os.path.lexists(word) or os.path.lexists(directory / word)
        paths += [find_bundle(word, directory)] if is_there else find_several(word, directory)
    paths = distinct(paths) or bundle_paths(directory) or [find_run("latest", directory)]  # says that there are none

    def installed_cases() -> Mapping[str, Manifest]:
        from flagperf.plugins.installed import load_plugins

        return {name: case.manifest for name, case in load_plugins().complete_cases().items()}

    last = time.monotonic()

    def tell(num_done: int, num_all: int, run_id: str) -> None:
        """Note progress now and then: the first page of a thousand comes at once, the last after minutes."""
        nonlocal last
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            note(f"{num_done:,} of {num_all:,} pages are written; now {run_id}")

    wanted = SiteWishes(title, cast(Lang, lang), allow_simulated, published)
    built = build_site(Path(out), paths, wanted, directory, installed_cases, tell)
    if as_json:
        echo_json(built)
    else:
        num_same = built.num_runs - len(built.rendered)
        echo(f"site: {built.index}")
        echo(f"on it: runs {built.num_runs:,}, cases {built.num_cases}, published results {built.num_published:,}")
        echo(f"pages: {len(built.rendered):,} rendered, {num_same:,} unchanged, {len(built.removed):,} removed")
        _list("left out", {each.run: each.why for each in built.left_out})
        _list("not verified", built.unverified)
    if show_page:
        open_page(Path(built.index))
    return BadInput.exit_code if any(each.is_problem for each in built.left_out) else 0


def _list(title: str, found: Mapping[str, str]) -> None:
    for run_id, why in list(found.items())[:MAX_NAMED]:
        echo(f"{title}: {run_id}: {why}")
    if len(found) > MAX_NAMED:
        echo(f"{title}: and {len(found) - MAX_NAMED:,} more; --json lists all")
