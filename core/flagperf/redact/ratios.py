"""A run whose values are ratios to a reference. No absolute value is left: a metric has none, with the reason
`withheld`, and its ratio beside it. So whatever reads runs takes it for missing and never for a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.messages import Message, message
from flagperf.metrics import Metric
from flagperf.plausibility import marked, rules
from flagperf.plausibility.apply import CARRIED
from flagperf.redact.commitments import Reference
from flagperf.spec import Manifest
from flagperf.spec.published_names import find_published, published_names
from flagperf.store.imported import references_of
from flagperf.store.run import Doubt, Ending, RecordedRun, Run


def as_ratios(run: Run, original: RecordedRun, reference: Reference) -> Run:
    """`run` is the redacted one; its figures are not there yet. Reasons and rows have absolute values too, and go.
    Rules of plausibility cannot be applied to ratios: the copy has their ids as marks."""
    shown = marked([original])[0]
    withholding = {name: doubt.rule for doubt in shown.doubts for name in doubt.metrics if _withholds(doubt)}
    return msgspec.structs.replace(
        run,
        job=msgspec.structs.replace(run.job, recording=None),
        ending=None if run.ending is None else Ending(run.ending.status),
        metrics=tuple(_relative(metric, reference, withholding.get(metric.name)) for metric in shown.run.metrics),
        rows=(),
        recorded=None,
    )


def _withholds(doubt: Doubt) -> bool:
    return rules()[doubt.rule].effect == "withheld"


def withheld_values(original: Run, reference: Reference) -> Iterator[tuple[str, str, str]]:
    """Kind, name and value of all that a copy with ratios does not show."""
    for metric in original.metrics:
        if metric.value is not None:
            yield "metric", metric.name, repr(metric.value)
        if metric.name in reference.values:
            yield "reference", metric.name, repr(reference.values[metric.name])


def _relative(metric: Metric, reference: Reference, rule: str | None) -> Metric:
    """Marks stay: they say what is wrong with a value, not how large it is. `rule`: that withheld it already."""
    head = Metric(metric.name, metric.unit, metric.definition, metric.scope, marks=metric.marks, version=metric.version)
    if metric.value is None:
        return msgspec.structs.replace(head, reason=metric.reason, inputs={CARRIED: rule} if rule else {})
    base = reference.values.get(metric.name)
    inputs = _ratios(metric, base) if base else {}
    why = _words(inputs)
    if metric.marks:
        why = message("redacted.marked", what=why, marks=list(metric.marks))
    return msgspec.structs.replace(head, reason="withheld", detail=str(why), message=why, inputs=inputs)


def _ratios(metric: Metric, base: float) -> dict[str, float]:
    assert metric.value is not None
    found = {"ratio": metric.value / base}
    if metric.interval is not None:
        edges = sorted((metric.interval.low / base, metric.interval.high / base))
        found |= {"ratio_low": edges[0], "ratio_high": edges[1]}
    return found


def _words(inputs: dict[str, float]) -> Message:
    if not inputs:
        return message("redacted.no_reference")
    ratio, low, high = (
        f"{inputs[name]:.4g}" if name in inputs else "" for name in ("ratio", "ratio_low", "ratio_high")
    )
    return (
        message("redacted.ratio_range", ratio=ratio, low=low, high=high)
        if low
        else message("redacted.ratio", ratio=ratio)
    )


# --- what is named as the reference ---------------------------------------------------------------------------------


def reference_run(run: Run, other: Run) -> Reference:
    """Raises BadInput if the two did not do the same."""
    here, there = ((each.job.case, each.job.profile) for each in (run, other))
    if here != there:
        names = [f"case {case}, profile {profile}" for case, profile in (here, there)]
        raise BadInput(f"{other.id} is no reference for {run.id}: {names[1]} is not {names[0]}")
    values = {metric.name: float(metric.value) for metric in other.metrics if metric.value is not None}
    if other.redacted == "ratios" or not values:
        raise BadInput(f"{other.id} has no values to be a reference")
    return Reference(other.id, values)


def published_reference(manifest: Manifest, wanted: str, runs_dir: Path) -> Reference:
    """Of the case, or imported into `runs_dir`; named as for `flagperf compare`."""
    known = published_names(manifest.name, references_of(manifest, runs_dir))
    name = find_published(wanted, known)
    return Reference(name, known[name].values)


def stated_reference(run: Run, given: Sequence[str]) -> Reference:
    """`name=value` each, in the unit of the metric."""
    known = [metric.name for metric in run.metrics]
    values: dict[str, float] = {}
    for each in given:
        name, _, text = each.rpartition("=")
        if name not in known:
            raise unknown_name("metric", name, known, f"(of {run.id})")
        try:
            values[name] = float(text)
        except ValueError:
            raise BadInput(f"--relative-to {each}: {text!r} is not a number") from None
        if not math.isfinite(values[name]) or values[name] <= 0:
            raise BadInput(f"--relative-to {each}: a reference is above 0, and {text} is not")
    return Reference(", ".join(given), values)
