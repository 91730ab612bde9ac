"""flagperf compare"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import click

from flagperf.bundle.listing import runs_directory
from flagperf.bundle.verify import damage_explains
from flagperf.cli.completers import complete_run
from flagperf.cli.options import FiniteRange, common, find_run, note, runs_dir_option, warn_unless_verified
from flagperf.cli.output import echo_json_text, echo_text, show
from flagperf.compare.comparison import Comparison, parse_limit
from flagperf.compare.comparison import compare as compare_sides
from flagperf.compare.ratio import MARGIN
from flagperf.compare.sides import named_sides, step_times
from flagperf.errors import BadInput
from flagperf.messages import Lang
from flagperf.report.screens import comparison_report
from flagperf.spec.manifest import Manifest
from flagperf_publish.commands.asked import form_of
from flagperf_publish.export.data_files import comparison_to_csv, comparison_to_json
from flagperf_publish.pages.comparison_page import comparison_web_page
from flagperf_publish.pages.layouts import to_html
from flagperf_publish.render.markdown import to_markdown

BROKEN = 9
"""Exit code if a limit of --fail-if is broken."""

PAGES: dict[str, Callable[[Comparison, Lang], str]] = {
    "md": lambda found, lang: to_markdown(comparison_report(found, lang)),
    "html": lambda found, lang: to_html(comparison_web_page(found, lang)),
}
"""Formats that are a page, in both languages."""


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="SIDE...", shell_complete=complete_run)
@click.option("--baseline", metavar="SIDE", help="The side that the others are compared with [default: the first].")
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="End with exit code 9 if a metric differs from the baseline so: 'p_core < -5%'; repeatable.",
)
@click.option(
    "--margin",
    type=FiniteRange(0, 10, min_open=True),
    default=MARGIN * 100,
    show_default=True,
    metavar="PERCENT",
    help="Smaller differences count as none.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", *PAGES, "csv", "json"]),
    help="Output format [default: terminal].",
)
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of a page.")
@click.option("--allow-simulated", is_flag=True, help="Allow simulated runs; they are marked and get no verdict.")
@runs_dir_option
@common
def compare(
    sides: tuple[str, ...],
    baseline: str | None,
    limits: tuple[str, ...],
    margin: float,
    form: str | None,
    lang: str,
    allow_simulated: bool,
    runs_dir: str | None,
    as_json: bool,
) -> int:
    """Compare runs or groups of runs, of any vendor, side by side.

    SIDE is a run (a path, a unique prefix of an id, or `latest`), several (RUN,RUN), a pattern of ids in quotes, the
    runs with a tag (tag:WORD), a group that `run --repeat` made, or a published result (published:NAME). A group whose
    settings took turns (`run --interleave-with`) is compared alone: its arms are the sides.

    What makes sides incomparable, and what differs in setup, is printed first. Groups of two runs and more get ratios
    with intervals, and verdicts; one run against one gets a difference. The exit code is 9 if a limit of --fail-if is
    broken, and 2 if one cannot be checked. Undecided limits are reported and do not fail.
    """
    form = form_of(form, lang, as_json, "terminal", PAGES)
    wanted = [parse_limit(text) for text in limits]
    directory = runs_directory(runs_dir)
    words = [_lasting(word, directory) for word in sides]
    base = baseline if baseline is None else _lasting(baseline, directory)

    def installed_cases() -> Iterable[Manifest]:
        from flagperf.plugins.installed import load_plugins

        return [case.manifest for case in load_plugins().complete_cases().values()]

    named = named_sides(words, base, directory, installed_cases)
    for side in named:
        if side.is_simulated and not allow_simulated:
            raise BadInput(
                f"{side.word} has simulated runs: no device was used, no figure of them is a measurement; "
                "use --allow-simulated to compare them anyway, marked and without verdicts"
            )
    paths = [Path(recorded.path) for side in named for recorded in side.runs]
    one_against_one = len(named) == 2 and all(len(side.runs) == 1 for side in named)
    with damage_explains(paths):
        steps = [step_times(side.runs[0]) for side in named] if one_against_one else []
        found = compare_sides(named, margin / 100, wanted, steps)
        if form == "json":
            echo_json_text(comparison_to_json(found))
        elif form == "csv":
            echo_text(comparison_to_csv(found))
        elif form in PAGES:
            echo_text(PAGES[form](found, cast(Lang, lang)))
        else:
            show(comparison_report(found))
    for path in paths:
        warn_unless_verified(path)
    for each in found.limits:
        if each.state == "undecided":
            note(f"--fail-if {each.limit.text!r}: undecided for {each.side}: the limit is inside its interval")
        if each.state == "broken":
            note(f"--fail-if {each.limit.text!r}: broken by {each.side}")
    if any(each.state == "broken" for each in found.limits):
        return BROKEN
    for each in found.limits:
        if each.state == "unknown":  # must not look as if the limit were kept
            raise BadInput(f"--fail-if {each.limit.text!r} cannot be judged for {each.side}: {each.why}")
    return 0


def _lasting(word: str, directory: Path) -> str:
    """Return `latest` by its id, so that what is printed can still be read later."""
    parts = word.split(",")
    return ",".join(find_run("latest", directory).name if part == "latest" else part for part in parts)
