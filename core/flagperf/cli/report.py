"""flagperf report"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import click
import msgspec

from flagperf.cli.completers import complete_run
from flagperf.cli.curves import ADVICE, chosen_rule, complete_curve, named_curve, rule_options
from flagperf.cli.options import common, no_published_option, runs_dir_option
from flagperf.cli.output import echo_json_text, echo_text
from flagperf.cli.terminal import show
from flagperf.cli.verified import damage_explains, warn_unless_verified
from flagperf.errors import BadInput
from flagperf.metrics import Metric, loss_aligned
from flagperf.report import page, run_report, to_json
from flagperf.store.bundle import read_bundle
from flagperf.store.curves import find_curve
from flagperf.store.listing import find_run, runs_directory
from flagperf.store.run import RecordedRun


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--format", "form", type=click.Choice(["table", "md", "json"]), help="Output format [default: table].")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of a page.")
@click.option("--allow-simulated", is_flag=True, help="Allow simulated runs on a page; they are marked.")
@click.option(
    "--reference",
    metavar="FILE|RUN",
    shell_complete=complete_curve,
    help="Compare the loss of every RUN with this one, as `flagperf align` does.",
)
@rule_options
@no_published_option
@runs_dir_option
@common
def report(
    runs: tuple[str, ...],
    form: str | None,
    lang: str,
    allow_simulated: bool,
    reference: str | None,
    rule_id: str | None,
    tolerance: float | None,
    no_published: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Print runs for the terminal, as a result page in Markdown, or as JSON.

    For the terminal, one run is a card, as `flagperf runs show` prints it, and several are a table. It fits the width
    of the terminal; in a pipe it has 200 columns, unless COLUMNS is set.

    With --reference, a loss that does not follow the reference is a result like any other (exit code 0). A run that
    cannot be compared with the reference is printed with the reason; where no run can, nothing is printed.
    """
    form = _form(form, lang, as_json)
    if reference is None and (rule_id is not None or tolerance is not None):
        raise BadInput("--rule and --tolerance need a reference; add --reference")
    rule = chosen_rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    paths = _different([find_run(run, directory) for run in runs])
    with damage_explains(paths):
        recorded = [read_bundle(path) for path in paths]
        if reference is not None:
            curve, name = named_curve(reference, directory), Path(reference).name
            verdicts = [loss_aligned(find_curve(path), curve, rule, curve.run or name) for path in paths]
            recorded = _with_verdicts(recorded, verdicts, reference)
        _print(recorded, form, cast(Literal["en", "zh"], lang), allow_simulated, published=not no_published)
    for path in paths:
        warn_unless_verified(path)


def _print(
    recorded: Sequence[RecordedRun], form: str, lang: Literal["en", "zh"], allow_simulated: bool, *, published: bool
) -> None:
    if form == "json":
        echo_json_text(to_json(recorded))
    elif form == "md":
        echo_text(page(recorded, lang, allow_simulated=allow_simulated, published=published))
    else:
        show(run_report(recorded, published=published))


def _with_verdicts(runs: Sequence[RecordedRun], verdicts: Sequence[Metric], reference: str) -> list[RecordedRun]:
    if all(verdict.value is None for verdict in verdicts):
        why = [f"{each.run.id}: {_no_verdict(verdict)}" for each, verdict in zip(runs, verdicts, strict=True)]
        raise BadInput(f"cannot align with {reference}: {'; '.join(why)}; {ADVICE}")
    return [
        msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, metrics=(*each.run.metrics, verdict)))
        for each, verdict in zip(runs, verdicts, strict=True)
    ]


def _no_verdict(verdict: Metric) -> str:
    found = verdict.inputs.get("obstacles")
    return "; ".join(found) if found else f"it has no loss curve: {verdict.reason}, {verdict.detail}"


def _different(paths: list[Path]) -> list[Path]:
    """Without duplicates: a run that is named twice is one row."""
    return list({path.resolve(): path for path in paths}.values())


def _form(asked: str | None, lang: str, as_json: bool) -> str:
    """Table, md or json. Options that contradict each other are refused: ignoring one would mislead."""
    if as_json and asked not in (None, "json"):
        raise BadInput(f"--json and --format {asked} contradict each other; give one of them")
    form = asked or ("json" if as_json else "table")
    if lang != "en" and form != "md":
        raise BadInput(f"--lang {lang} is for pages, --format {form} is in English only; add --format md")
    return form
