"""flagperf align"""

from __future__ import annotations

import click

from flagperf.cli.curves import ADVICE, chosen_rule, complete_curve, named_curve, rule_options
from flagperf.cli.options import common, note, runs_dir_option
from flagperf.cli.output import echo_json_text
from flagperf.cli.terminal import show
from flagperf.errors import BadInput
from flagperf.metrics import Alignment, LossCurve, Rule, align_curves, obstacles
from flagperf.report import alignment_report, alignment_to_json
from flagperf.store.listing import runs_directory
from flagperf.store.run import EXIT_CODES


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
    _check(*curves, rule, run, reference)
    alignment = align_curves(*curves, rule)
    if as_json:
        echo_json_text(alignment_to_json(alignment, *curves))
    else:
        show(alignment_report(alignment, *curves))
        _hint(alignment)
    return 0 if alignment.aligned else EXIT_CODES["target_missed"]


def _check(curve: LossCurve, reference: LossCurve, rule: Rule, run_word: str, reference_word: str) -> None:
    found = obstacles(curve, reference, rule)
    if found:
        raise BadInput(f"cannot align {run_word} with {reference_word}: {'; '.join(map(str, found))}; {ADVICE}")


def _hint(alignment: Alignment) -> None:
    rule, largest = alignment.rule, alignment.largest
    if rule.judges == "each" and not alignment.aligned and not alignment.gaps and largest and largest.error <= 1e-5:
        note("sums in another order round differently; `--tolerance 1e-5` allows for that")
