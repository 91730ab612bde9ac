"""flagperf align"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from flagperf.bundle.curve_files import curve_of_run, read_curve
from flagperf.bundle.listing import runs_directory
from flagperf.bundle.run_record import EXIT_CODES
from flagperf.bundle.verify import damage_explains
from flagperf.cli.completers import complete_file, complete_run
from flagperf.cli.options import FiniteRange, common, find_run, note, runs_dir_option, warn_unless_verified
from flagperf.cli.output import echo_json_text, show
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.metrics.alignment import RULES, AlignmentRule, LossCurve, align_curves, obstacles
from flagperf.report.screens import alignment_report
from flagperf.report.sections.alignment_blocks import alignment_to_json

# Loss curves on the command line: how one is named, and the rule that judges it.


F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_RULE = "flagperf-2pct"

ADVICE = "compare runs of the same case, model, data, seed, samples per step and steps"


def complete_curve(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found = complete_run(ctx, parameter, incomplete)
    has_runs = any(item.type == "plain" for item in found)
    return found if has_runs else complete_file(ctx, parameter, incomplete)


def rule_options(function: F) -> F:
    """--rule and --tolerance, for `chosen_rule`."""
    options = [
        click.option(
            "--rule",
            "rule_id",
            type=click.Choice(list(RULES)),
            help="flagperf-2pct: mean relative error below 2 % from step 21 on; exact: bitwise equal losses "
            f"[default: {DEFAULT_RULE}].",
        ),
        click.option(
            "--tolerance",
            type=FiniteRange(0, max=1),
            metavar="SHARE",
            help="With --rule exact: the relative error allowed in each step, for example 1e-5 [default: 0].",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def chosen_rule(rule_id: str | None, tolerance: float | None) -> AlignmentRule:
    rule = RULES[rule_id or DEFAULT_RULE]
    if tolerance is None:
        return rule
    if rule.judges != "each":
        raise BadInput(
            f"--tolerance is for --rule exact, rule {rule.id} has its own limit {rule.limit:g}; leave out one of them"
        )
    return msgspec.structs.replace(rule, limit=tolerance)


def named_curve(word: str, runs_dir: Path) -> LossCurve:
    """Read the curve of a run, or a file that `flagperf runs curve` wrote."""
    if os.path.lexists(word) and not is_folder(Path(word)):
        return read_curve(Path(word))
    try:
        found = find_run(word, runs_dir)
    except BadInput as error:
        raise BadInput(f"there is no file {word}, and {error}") from None
    with damage_explains([found]):
        curve = curve_of_run(found)
    warn_unless_verified(found)
    return curve


@click.command()
@click.argument("run", shell_complete=complete_curve)
@click.argument("reference", shell_complete=complete_curve)
@rule_options
@runs_dir_option
@common
def align(
    run: str, reference: str, rule_id: str | None, tolerance: float | None, runs_dir: str | None, as_json: bool
) -> int:
    """Check whether the loss of RUN follows that of REFERENCE, step by step.

    Each of the two is a run, or a file that `flagperf runs curve` wrote. Case, model, data, seed, samples per step and
    steps must be the same; shape, vendor and precision may differ. The exit code is 0 if they are aligned and 7 if not.
    """
    rule = chosen_rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    curves = named_curve(run, directory), named_curve(reference, directory)
    found = obstacles(*curves, rule)
    if found:
        raise BadInput(f"cannot align {run} with {reference}: {'; '.join(map(str, found))}; {ADVICE}")
    alignment = align_curves(*curves, rule)
    is_aligned, largest = alignment.aligned, alignment.largest
    if as_json:
        echo_json_text(alignment_to_json(alignment, *curves))
    else:
        show(alignment_report(alignment, *curves))
        if rule.judges == "each" and not is_aligned and not alignment.gaps and largest and largest.error <= 1e-5:
            note("sums in another order round differently; `--tolerance 1e-5` allows for that")
    return 0 if is_aligned else EXIT_CODES["target_missed"]
