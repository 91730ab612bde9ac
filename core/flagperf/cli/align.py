"""flagperf align"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec
from click.shell_completion import CompletionItem

from flagperf.cli.complete import complete_file, complete_run
from flagperf.cli.holds import warn_unless_it_holds
from flagperf.cli.options import common, note, runs_dir_option, wants_color
from flagperf.errors import BadInput
from flagperf.metrics import RULES, Alignment, LossCurve, Rule, obstacles
from flagperf.metrics import align as align_curves
from flagperf.report import alignment_summary, alignment_to_json, print_table
from flagperf.store import EXIT_CODES, curve_of_run, find_run, read_curve, runs_directory


def _complete_curve(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found = complete_run(ctx, parameter, incomplete)
    has_runs = any(item.type == "plain" for item in found)
    return found if has_runs else complete_file(ctx, parameter, incomplete)


@click.command()
@click.argument("run", shell_complete=_complete_curve)
@click.argument("reference", shell_complete=_complete_curve)
@click.option(
    "--rule", "rule_id", type=click.Choice(list(RULES)), default="flagperf-2pct", show_default=True,
    help="flagperf-2pct: mean relative error below 2 % from step 21 on; exact: bitwise equal losses.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(0, max=1), metavar="SHARE",
    help="With --rule exact: the relative error that every step may have, for example 1e-5 [default: 0].",
)  # fmt: skip
@runs_dir_option
@common
def align(run: str, reference: str, rule_id: str, tolerance: float | None, runs_dir: str | None, as_json: bool) -> int:
    """Does the loss of RUN follow that of REFERENCE, step by step?

    Each of the two is a run, or a file that `flagperf runs curve` wrote. They have to be of the same case, model,
    data, seed, samples per step and steps; shape, vendor and precision may differ. Ends with 0 where they are aligned
    and with 7 where they are not.
    """
    rule = _rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    curves = _curve(run, directory), _curve(reference, directory)
    _check(*curves, rule, run, reference)
    alignment = align_curves(*curves, rule)
    if as_json:
        click.echo(alignment_to_json(alignment, *curves))
    else:
        print_table("", alignment_summary(alignment, *curves), color=wants_color(), file=sys.stdout)
        _hint(alignment)
    return 0 if alignment.aligned else EXIT_CODES["target_missed"]


def _rule(rule_id: str, tolerance: float | None) -> Rule:
    rule = RULES[rule_id]
    if tolerance is None:
        return rule
    if rule.judges != "each":
        raise BadInput(f"--tolerance is for --rule exact; rule {rule_id} has a limit of its own, {rule.limit:g}")
    return msgspec.structs.replace(rule, limit=tolerance)


def _curve(word: str, runs_dir: Path) -> LossCurve:
    if os.path.lexists(word) and not Path(word).is_dir():
        return read_curve(Path(word))
    try:
        found = find_run(word, runs_dir)
    except BadInput as error:
        raise BadInput(f"there is no file {word}, and {error}") from None
    curve = curve_of_run(found)
    warn_unless_it_holds(found)
    return curve


def _check(curve: LossCurve, reference: LossCurve, rule: Rule, run_word: str, reference_word: str) -> None:
    found = obstacles(curve, reference, rule)
    if found:
        advice = "compare runs of the same case, model, data, seed, samples per step and steps"
        raise BadInput(f"cannot align {run_word} with {reference_word}: {'; '.join(found)}; {advice}")


def _hint(alignment: Alignment) -> None:
    rule, largest = alignment.rule, alignment.largest
    if rule.judges == "each" and not alignment.aligned and not alignment.gaps and largest and largest.error <= 1e-5:
        note("sums in another order round differently: `--tolerance 1e-5` asks for equality up to that")
