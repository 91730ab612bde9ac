"""Loss curves on the command line: how one is named, and the rule that judges it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from flagperf.cli.completers import complete_file, complete_run
from flagperf.cli.options import FiniteRange
from flagperf.cli.run_argument import find_run
from flagperf.cli.verified import warn_unless_verified
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.metrics import RULES, LossCurve, Rule
from flagperf.store.curves import curve_of_run, read_curve
from flagperf.verify import damage_explains

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


def chosen_rule(rule_id: str | None, tolerance: float | None) -> Rule:
    rule = RULES[rule_id or DEFAULT_RULE]
    if tolerance is None:
        return rule
    if rule.judges != "each":
        raise BadInput(
            f"--tolerance is for --rule exact, rule {rule.id} has its own limit {rule.limit:g}; leave out one of them"
        )
    return msgspec.structs.replace(rule, limit=tolerance)


def named_curve(word: str, runs_dir: Path) -> LossCurve:
    """Of a run, or of a file that `flagperf runs curve` wrote."""
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
