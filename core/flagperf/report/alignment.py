"""What `flagperf align` prints, and what a page says of a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from flagperf import units
from flagperf.metrics import Alignment, LossCurve, Metric, Rule, StepError, alignment_fields, changed_values, unstated
from flagperf.report.table import Table
from flagperf.report.texts import Lang, clauses, listed, recorded_words, say
from flagperf.report.words import vendor_and_device

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
            ("rule", alignment.rule.id, rule_meaning(alignment.rule, "en")),
            ("steps judged", units.count(alignment.num_judged), steps),
            *_errors(alignment),
            *_gaps(alignment),
            *_conditions(curve, reference),
            ("aligned", str(alignment.aligned), _reason(alignment)),
        ),
    )


def alignment_to_json(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> bytes:
    """The fields are those of metrics.alignment_fields."""
    return msgspec.json.format(msgspec.json.encode(alignment_fields(alignment, curve, reference)), indent=2)


def verdict_word(aligned: float) -> str:
    """As published pages have it."""
    return str(bool(aligned))


def verdict_sentence(verdict: Metric, lang: Lang) -> str:
    """Rule, reference, errors, and what a reader has to know of the comparison."""
    if verdict.value is None:
        return ""
    found = verdict.inputs
    rule = msgspec.convert(found["rule"], Rule)
    said = say(
        "aligned", lang, verdict=verdict_word(verdict.value), rule=rule.id, meaning=rule_meaning(rule, lang),
        reference=_reference_name(found, lang),
    )  # fmt: skip
    return clauses([said, _said_errors(found, lang), *_said_conditions(found, lang)], lang)


def rule_meaning(rule: Rule, lang: Lang) -> str:
    if rule.judges == "mean":
        return say("rule_mean", lang, limit=units.relative_error(rule.limit), step=rule.first_step)
    return say("rule_each", lang, limit=units.setting(rule.limit)) if rule.limit else say("rule_exact", lang)


def _reference_name(found: dict[str, Any], lang: Lang) -> str:
    reference = found["reference"]
    device = vendor_and_device(reference["vendor"], reference["device"])
    remark = f"{device} {reference['shape']}".strip() or say("foreign_curve", lang)
    return say("with_remark", lang, text=found["reference_name"], remark=remark)


def _said_errors(found: dict[str, Any], lang: Lang) -> str:
    """Nothing where no judged step has an error: the gaps are then told."""
    largest = found["largest"]
    if largest is None:
        return ""
    return say(
        "aligned_errors", lang, mean=units.relative_error(found["mean_error"]),
        largest=units.relative_error(largest["error"]), step=largest["step"], compared=found["num_compared"],
        judged=found["num_judged"], first=found["first_step"], last=found["last_step"],
    )  # fmt: skip


def _said_conditions(found: dict[str, Any], lang: Lang) -> Iterator[str]:
    if found["gaps"]:
        steps = sorted({gap["step"] for gap in found["gaps"]})
        yield say("aligned_gaps", lang, count=len(steps), step=steps[0])
    if found["run"]["run"] and found["run"]["run"] == found["reference"]["run"]:
        yield say("aligned_itself", lang)
    if found["differences"]:
        named = [f"{key} {units.setting(a)}/{units.setting(b)}" for key, (a, b) in found["differences"].items()]
        yield say("aligned_differ", lang, values=listed(named, lang))
    if found["unstated"]:
        yield say("aligned_unstated", lang, names=listed([recorded_words(n, lang) for n in found["unstated"]], lang))


def _named(curve: LossCurve) -> tuple[str, str]:
    about = (curve.vendor, curve.device, curve.shape, curve.values.get("precision"), curve.profile)
    return curve.run or "not of a run", ", ".join(str(word) for word in (curve.case, *about) if word)


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
        yield "not compared", units.count(len(unknown)), f"{', '.join(map(str, unknown))}: one of the two does not say"


def _reason(alignment: Alignment) -> str:
    if alignment.aligned:
        return ""
    if alignment.gaps:
        return "a step without a finite loss on both sides fails the check"
    figure = "mean" if alignment.rule.judges == "mean" else "largest"
    return f"the {figure} error is not within the limit"
