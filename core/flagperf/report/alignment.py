"""What `flagperf align` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from flagperf import units
from flagperf.metrics import Alignment, LossCurve, Rule, StepError, changed_values, unstated
from flagperf.report.table import Table

_NAMED_GAPS = 3
_NAMED_VALUES = 8

Cells = tuple[str, str, str]
"""Label, value, note."""


def alignment_summary(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Table:
    steps = f"{alignment.first_step} to {alignment.last_step}, of {curve.first_step} to {curve.last_step}"
    return Table(
        (),
        (
            ("run", *_named(curve)),
            ("reference", *_named(reference)),
            ("rule", alignment.rule.id, _meaning(alignment.rule)),
            ("steps judged", units.count(alignment.num_judged), steps),
            *_errors(alignment),
            *_gaps(alignment),
            *_conditions(curve, reference),
            ("aligned", str(alignment.aligned), _reason(alignment)),
        ),
    )


def alignment_to_json(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> bytes:
    """`differences`: value of the run, then of the reference. Errors are shares of 1; what is not known is null."""
    exported = {
        "run": _identity(curve),
        "reference": _identity(reference),
        **msgspec.to_builtins(alignment),
        "num_judged": alignment.num_judged,
        "differences": changed_values(curve, reference),
        "unstated": unstated(curve, reference),
    }
    return msgspec.json.format(msgspec.json.encode(exported), indent=2)


def _identity(curve: LossCurve) -> dict[str, Any]:
    names = ("run", "case", "case_version", "profile", "vendor", "device", "shape")
    return {name: getattr(curve, name) for name in names}


def _named(curve: LossCurve) -> tuple[str, str]:
    about = (curve.vendor, curve.device, curve.shape, curve.values.get("precision"), curve.profile)
    return curve.run or "not of a run", ", ".join(str(word) for word in (curve.case, *about) if word)


def _meaning(rule: Rule) -> str:
    if rule.judges == "mean":
        return f"mean relative error below {units.relative_error(rule.limit)} from step {rule.first_step} on"
    if rule.limit == 0:
        return "bitwise equal losses at every step"
    return f"relative error of at most {rule.limit:g} at every step"


def _errors(alignment: Alignment) -> Iterator[Cells]:
    compared = alignment.num_compared
    over = f"over the {units.count(compared)} steps that have one" if compared < alignment.num_judged else ""
    yield "mean error", "n/a" if alignment.mean_error is None else units.relative_error(alignment.mean_error), over
    largest, first = alignment.largest, alignment.first_above
    yield "largest error", *((units.relative_error(largest.error), _at(largest)) if largest else ("n/a", ""))
    yield "first above limit", *((f"step {first.step}", units.relative_error(first.error)) if first else ("none", ""))
    if alignment.drift_per_step is not None:
        yield "drift", f"{alignment.drift_per_step * 100:+.4g}%", "per step: slope of the errors with their signs"


def _at(error: StepError) -> str:
    return f"step {error.step}: {error.loss!r} against {error.reference!r}"


def _gaps(alignment: Alignment) -> Iterator[Cells]:
    if not alignment.gaps:
        return
    named = "; ".join(f"step {gap.step}, {gap.remark}" for gap in alignment.gaps[:_NAMED_GAPS])
    rest = len(alignment.gaps) - _NAMED_GAPS
    yield "without an error", units.count(len(alignment.gaps)), named + (f"; and {rest} more" if rest > 0 else "")


def _conditions(curve: LossCurve, reference: LossCurve) -> Iterator[Cells]:
    changed = changed_values(curve, reference)
    if changed:
        named = [f"{key} {units.setting(a)} against {units.setting(b)}" for key, (a, b) in changed.items()]
        rest = f" and {len(named) - _NAMED_VALUES} more" if len(named) > _NAMED_VALUES else ""
        yield "values that differ", units.count(len(named)), ", ".join(named[:_NAMED_VALUES]) + rest
    unknown = unstated(curve, reference)
    if unknown:
        yield "not compared", units.count(len(unknown)), f"{', '.join(unknown)}: one of the two does not say"


def _reason(alignment: Alignment) -> str:
    if alignment.aligned:
        return ""
    if alignment.gaps:
        return "a step without a finite loss on both sides fails the check"
    figure = "mean" if alignment.rule.judges == "mean" else "largest"
    return f"the {figure} error is not within the limit"
