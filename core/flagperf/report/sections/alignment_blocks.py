"""The output of `flagperf align`, and the sentence about loss alignment on a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from flagperf import units
from flagperf.messages import Lang, Message, clauses, listed, say, words
from flagperf.metrics.alignment import (
    Alignment,
    AlignmentRule,
    LossCurve,
    StepError,
    alignment_fields,
    changed_values,
    unstated,
)
from flagperf.metrics.entry import Metric
from flagperf.report.document import Block, Chart, ChartSeries, Facts, LabelledCell, Status, Text
from flagperf.report.wording import short_ids, vendor_and_device, verdict_word

_NAMED_GAPS = 3

_NAMED_VALUES = 8


def alignment_blocks(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Iterator[Block]:
    ids = short_ids([curve.run, reference.run])
    steps = f"{alignment.first_step} to {alignment.last_step}, of {curve.first_step} to {curve.last_step}"
    facts = (
        _named("run", curve, ids[curve.run]),
        _named("reference", reference, ids[reference.run]),
        LabelledCell("rule", Text(alignment.rule.id), rule_meaning(alignment.rule, "en")),
        LabelledCell("steps judged", Text(units.count(alignment.num_judged)), steps),
        *_errors(alignment),
        *_gaps(alignment),
        *_conditions(curve, reference),
        LabelledCell("aligned", Status(str(alignment.aligned), alignment.aligned), _reason(alignment)),
    )
    yield Facts(facts)
    yield Chart("Loss", "step", "loss", (_series("run", curve), _series("reference", reference)))


def _series(name: str, curve: LossCurve) -> ChartSeries:
    return ChartSeries(name, tuple((point.step, point.loss) for point in curve.points if point.loss is not None))


def alignment_to_json(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> bytes:
    """The fields of metrics.alignment_fields."""
    return msgspec.json.format(msgspec.json.encode(alignment_fields(alignment, curve, reference)), indent=2)


def verdict_sentence(verdict: Metric, lang: Lang) -> str:
    """AlignmentRule, reference, errors and caveats of the comparison. Empty without a verdict."""
    if verdict.value is None:
        return ""
    found = verdict.inputs
    rule = msgspec.convert(found["rule"], AlignmentRule)
    said = say(
        "aligned",
        lang,
        verdict=verdict_word(verdict.value),
        rule=rule.id,
        meaning=rule_meaning(rule, lang),
        reference=_reference_name(found, lang),
    )
    return clauses([said, _said_errors(found, rule, lang), *_said_conditions(found, lang)], lang)


def rule_meaning(rule: AlignmentRule, lang: Lang) -> str:
    if rule.judges == "mean":
        return say("rule_mean", lang, limit=error_text(rule, rule.limit), step=rule.first_step)
    return say("rule_each", lang, limit=error_text(rule, rule.limit)) if rule.limit else say("rule_exact", lang)


def error_text(rule: AlignmentRule, error: float) -> str:
    """In the unit of the rule's limit: percent for a mean, a fraction for a tolerance (`--tolerance 1e-5`)."""
    return units.relative_error(error) if rule.judges == "mean" else units.setting(float(f"{error:.4g}"))


def _reference_name(found: dict[str, Any], lang: Lang) -> str:
    reference = found["reference"]
    device = vendor_and_device(reference["vendor"], reference["device"])
    remark = f"{device} {reference['shape']}".strip() or say("foreign_curve", lang)
    return say("with_remark", lang, text=found["reference_name"], remark=remark)


def _said_errors(found: dict[str, Any], rule: AlignmentRule, lang: Lang) -> str:
    """Empty if no judged step could be compared; the gaps are reported instead."""
    largest = found["largest"]
    if largest is None:
        return ""
    return say(
        "aligned_errors",
        lang,
        mean=error_text(rule, found["mean_error"]),
        largest=error_text(rule, largest["error"]),
        step=largest["step"],
        compared=found["num_compared"],
        judged=found["num_judged"],
        first=found["first_step"],
        last=found["last_step"],
    )


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
        yield say("aligned_unstated", lang, names=listed(_unstated_names(found, lang), lang))


def _unstated_names(found: dict[str, Any], lang: Lang) -> list[str]:
    return [words(msgspec.convert(each, Message), lang) for each in found["unstated_messages"]]


def _named(label: str, curve: LossCurve, short: str) -> LabelledCell:
    about = (curve.vendor, curve.device, curve.shape, curve.values.get("precision"), curve.profile)
    known = ", ".join(str(word) for word in (curve.case, *about) if word)
    return LabelledCell(label, Text(curve.run or "not from a run", short), known)


def _errors(alignment: Alignment) -> Iterator[LabelledCell]:
    def text(error: float | None) -> Text:
        return Text("n/a" if error is None else error_text(alignment.rule, error))

    compared = alignment.num_compared
    over = f"over the {units.count(compared)} steps that can be compared" if compared < alignment.num_judged else ""
    largest, first, drift = alignment.largest, alignment.first_above, alignment.drift_per_step
    yield LabelledCell("mean error", text(alignment.mean_error), over)
    yield LabelledCell("largest error", text(largest.error if largest else None), _at(largest) if largest else "")
    above = error_text(alignment.rule, first.error) if first else ""
    yield LabelledCell("first above limit", Text(f"step {first.step}" if first else "none"), above)
    if drift is not None:
        sign = "+" if drift >= 0 else ""
        slope = sign + error_text(alignment.rule, drift)
        yield LabelledCell("drift", Text(slope), "per step: slope of the signed errors")


def _at(error: StepError) -> str:
    return f"step {error.step}: {error.loss!r} vs. {error.reference!r}"


def _gaps(alignment: Alignment) -> Iterator[LabelledCell]:
    if not alignment.gaps:
        return
    named = "; ".join(f"step {gap.step}, {gap.remark}" for gap in alignment.gaps[:_NAMED_GAPS])
    rest = len(alignment.gaps) - _NAMED_GAPS
    more = f"; and {rest} more" if rest > 0 else ""
    yield LabelledCell("not comparable", Text(units.count(len(alignment.gaps))), named + more)


def _conditions(curve: LossCurve, reference: LossCurve) -> Iterator[LabelledCell]:
    changed = changed_values(curve, reference)
    if changed:
        named = [f"{key} {units.setting(a)} vs. {units.setting(b)}" for key, (a, b) in changed.items()]
        rest = f" and {len(named) - _NAMED_VALUES} more" if len(named) > _NAMED_VALUES else ""
        yield LabelledCell("values that differ", Text(units.count(len(named))), ", ".join(named[:_NAMED_VALUES]) + rest)
    unknown = unstated(curve, reference)
    if unknown:
        missing = f"{', '.join(map(str, unknown))}: not recorded on both sides"
        yield LabelledCell("not compared", Text(units.count(len(unknown))), missing)


def _reason(alignment: Alignment) -> str:
    if alignment.aligned:
        return ""
    if alignment.gaps:
        return "every step needs a finite loss on both sides"
    figure = "mean" if alignment.rule.judges == "mean" else "largest"
    return f"the {figure} error is not within the limit"
