"""The output of `flagperf align`, and the sentence about loss alignment on a page."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flagperf import units
from flagperf.messages import Lang, Message, clauses, listed, say, words
from flagperf.metrics.alignment import Alignment, AlignmentRule, LossCurve, alignment_fields, changed_values, unstated
from flagperf.metrics.entry import Metric
from flagperf.report.document import Block, Chart, ChartSeries, Facts, LabelledCell, Status, Text
from flagperf.report.wording import short_ids, vendor_and_device, verdict_word

_NAMED_GAPS = 3

_NAMED_VALUES = 8


def alignment_blocks(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Iterator[Block]:
    ids = short_ids([curve.run, reference.run])
    facts = []
    for name, each in (("run", curve), ("reference", reference)):
        about = (each.case, each.vendor, each.device, each.shape, each.values.get("precision"), each.profile)
        known = ", ".join(str(word) for word in about if word)
        facts.append(LabelledCell(name, Text(each.run or "not from a run", ids[each.run]), known))
    reason = ""
    if not alignment.aligned and alignment.gaps:
        reason = "every step needs a finite loss on both sides"
    elif not alignment.aligned:
        figure = "mean" if alignment.rule.judges == "mean" else "largest"
        reason = f"the {figure} error is not within the limit"
    steps = f"{alignment.first_step} to {alignment.last_step}, of {curve.first_step} to {curve.last_step}"
    facts += [
        LabelledCell("rule", Text(alignment.rule.id), rule_meaning(alignment.rule, "en")),
        LabelledCell("steps judged", Text(units.count(alignment.num_judged)), steps),
        *_errors(alignment),
        *_obstacles(alignment, curve, reference),
        LabelledCell("aligned", Status(str(alignment.aligned), alignment.aligned), reason),
    ]
    yield Facts(tuple(facts))
    series = (
        ChartSeries(name, tuple((point.step, point.loss) for point in each.points if point.loss is not None))
        for name, each in (("run", curve), ("reference", reference))
    )
    yield Chart("Loss", "step", "loss", tuple(series))


def _errors(alignment: Alignment) -> Iterator[LabelledCell]:
    def text(error: float | None) -> Text:
        return Text("n/a" if error is None else error_text(alignment.rule, error))

    compared = alignment.num_compared
    over = f"over the {units.count(compared)} steps that can be compared" if compared < alignment.num_judged else ""
    largest, first, drift = alignment.largest, alignment.first_above, alignment.drift_per_step
    yield LabelledCell("mean error", text(alignment.mean_error), over)
    at = f"step {largest.step}: {largest.loss!r} vs. {largest.reference!r}" if largest else ""
    yield LabelledCell("largest error", text(largest.error if largest else None), at)
    above = error_text(alignment.rule, first.error) if first else ""
    yield LabelledCell("first above limit", Text(f"step {first.step}" if first else "none"), above)
    if drift is not None:
        sign = "+" if drift >= 0 else ""
        slope = sign + error_text(alignment.rule, drift)
        yield LabelledCell("drift", Text(slope), "per step: slope of the signed errors")


def _obstacles(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> Iterator[LabelledCell]:
    """Name the steps without a comparison, the values that differ, and what one side did not record."""
    gaps = alignment.gaps
    if gaps:
        named = "; ".join(f"step {gap.step}, {gap.remark}" for gap in gaps[:_NAMED_GAPS])
        more = f"; and {len(gaps) - _NAMED_GAPS} more" if len(gaps) > _NAMED_GAPS else ""
        yield LabelledCell("not comparable", Text(units.count(len(gaps))), named + more)
    changed = changed_values(curve, reference)
    if changed:
        values = [f"{key} {units.setting(a)} vs. {units.setting(b)}" for key, (a, b) in changed.items()]
        more = f" and {len(values) - _NAMED_VALUES} more" if len(values) > _NAMED_VALUES else ""
        yield LabelledCell(
            "values that differ", Text(units.count(len(values))), ", ".join(values[:_NAMED_VALUES]) + more
        )
    unknown = unstated(curve, reference)
    if unknown:
        missing = f"{', '.join(map(str, unknown))}: not recorded on both sides"
        yield LabelledCell("not compared", Text(units.count(len(unknown))), missing)


def alignment_to_json(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> bytes:
    return msgspec.json.format(msgspec.json.encode(alignment_fields(alignment, curve, reference)), indent=2)


def verdict_sentence(verdict: Metric, lang: Lang) -> str:
    """Return rule, reference, errors and caveats of the comparison, or nothing without a verdict."""
    if verdict.value is None:
        return ""
    found = verdict.inputs
    rule, reference, largest = msgspec.convert(found["rule"], AlignmentRule), found["reference"], found["largest"]
    device = vendor_and_device(reference["vendor"], reference["device"])
    remark = f"{device} {reference['shape']}".strip() or say("foreign_curve", lang)
    said = [
        say(
            "aligned",
            lang,
            verdict=verdict_word(verdict.value),
            rule=rule.id,
            meaning=rule_meaning(rule, lang),
            reference=say("with_remark", lang, text=found["reference_name"], remark=remark),
        )
    ]
    if largest is not None:  # else the gaps say that no judged step could be compared
        said.append(
            say(
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
        )
    if found["gaps"]:
        steps = sorted({gap["step"] for gap in found["gaps"]})
        said.append(say("aligned_gaps", lang, count=len(steps), step=steps[0]))
    if found["run"]["run"] and found["run"]["run"] == reference["run"]:
        said.append(say("aligned_itself", lang))
    if found["differences"]:
        named = [f"{key} {units.setting(a)}/{units.setting(b)}" for key, (a, b) in found["differences"].items()]
        said.append(say("aligned_differ", lang, values=listed(named, lang)))
    if found["unstated"]:
        names = [words(msgspec.convert(each, Message), lang) for each in found["unstated_messages"]]
        said.append(say("aligned_unstated", lang, names=listed(names, lang)))
    return clauses(said, lang)


def rule_meaning(rule: AlignmentRule, lang: Lang) -> str:
    if rule.judges == "mean":
        return say("rule_mean", lang, limit=error_text(rule, rule.limit), step=rule.first_step)
    return say("rule_each", lang, limit=error_text(rule, rule.limit)) if rule.limit else say("rule_exact", lang)


def error_text(rule: AlignmentRule, error: float) -> str:
    """Write an error as the rule's limit is: percent for a mean, a fraction for a tolerance (`--tolerance 1e-5`)."""
    return units.relative_error(error) if rule.judges == "mean" else units.setting(float(f"{error:.4g}"))
