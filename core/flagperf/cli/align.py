"""flagperf align"""

from __future__ import annotations

import click

from flagperf.cli.curves import ADVICE, chosen_rule, complete_curve, named_curve, rule_options
from flagperf.cli.options import common, note, runs_dir_option
from flagperf.cli.terminal import show
from flagperf.errors import BadInput
from flagperf.metrics import Alignment, LossCurve, Rule, obstacles
from flagperf.metrics import align as align_curves
from flagperf.report import alignment_report, alignment_to_json
from flagperf.store import EXIT_CODES, runs_directory


@click.command()
@click.argument("run", shell_complete=complete_curve)
@click.argument("reference", shell_complete=complete_curve)
@rule_options
@runs_dir_option
@common
def align(
    run: str, reference: str, rule_id: str | None, tolerance: float | None, runs_dir: str | None, as_json: bool
) -> int:
    """Does the loss of RUN follow that of REFERENCE, step by step?

    Each of the two is a run, or a file that `flagperf runs curve` wrote. They have to be of the same case, model,
    data, seed, samples per step and steps; shape, vendor and precision may differ. Ends with 0 where they are aligned
    and with 7 where they are not.
    """
    rule = chosen_rule(rule_id, tolerance)
    directory = runs_directory(runs_dir)
    curves = named_curve(run, directory), named_curve(reference, directory)
    _check(*curves, rule, run, reference)
    alignment = align_curves(*curves, rule)
    if as_json:
        click.echo(alignment_to_json(alignment, *curves))
    else:
        show(alignment_report(alignment, *curves))
        _hint(alignment)
    return 0 if alignment.aligned else EXIT_CODES["target_missed"]


def _check(curve: LossCurve, reference: LossCurve, rule: Rule, run_word: str, reference_word: str) -> None:
    found = obstacles(curve, reference, rule)
    if found:
        raise BadInput(f"cannot align {run_word} with {reference_word}: {'; '.join(found)}; {ADVICE}")


def _hint(alignment: Alignment) -> None:
    rule, largest = alignment.rule, alignment.largest
    if rule.judges == "each" and not alignment.aligned and not alignment.gaps and largest and largest.error <= 1e-5:
        note("sums in another order round differently: `--tolerance 1e-5` asks for equality up to that")
