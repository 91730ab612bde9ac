"""Doubts about throughputs: faster than the card can be, too few steps, a card that was held back, a loss that is no
number."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.kinds import KINDS
from flagperf.messages import Message, message
from flagperf.plausibility.arithmetic import explaining_row
from flagperf.plausibility.rows import timed
from flagperf.plausibility.rule import Check, Rule, Seen, reach, value_of
from flagperf.store.run import RecordedRun, Run

NOT_COMPUTE = ("memory_bandwidth", "link_bandwidth", "tdp")
"""Rows of peaks that are not FLOP/s."""


def above_peak(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    found = _too_fast(recorded.run)
    if found is not None and not _is_tf32(recorded.run, found):
        yield Seen(message("doubt.above_peak", **_figures(recorded.run, found)))


def tf32_called_fp32(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    found = _too_fast(recorded.run)
    if found is not None and _is_tf32(recorded.run, found):
        other = units.teraflops(_peaks(recorded.run)["tf32"])
        yield Seen(message("doubt.tf32_called_fp32", **_figures(recorded.run, found), other=other))


def _too_fast(run: Run) -> float | None:
    """FLOP/s of a device, where they were above the peak: MFU itself was withheld by its formula, the throughputs that
    it comes from were not."""
    mfu = run.metric("mfu")
    if mfu is None or mfu.message is None or mfu.message.code != "flops.above_peak":
        return None
    tokens, flops = mfu.inputs.get("tokens_per_second_per_device"), mfu.inputs.get("flops_per_token")
    return tokens * flops if tokens and flops else None


def _is_tf32(run: Run, rate: float) -> bool:
    row = run.job.precision.peak_row
    return row == "fp32" and explaining_row(rate, row, _peaks(run)) == "tf32"


def _peaks(run: Run) -> dict[str, float]:
    return {peak.row: peak.value for peak in run.job.peaks if peak.row not in NOT_COMPUTE}


def _figures(run: Run, rate: float) -> dict[str, str]:
    peak = run.job.peak
    return {
        "rate": units.teraflops(rate),
        "peak": units.teraflops(peak.value) if peak else "",
        "precision": run.job.precision.peak_row,
    }


def few_steps(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    kept = value_of(recorded.run, "steps_kept")
    if kept is not None and 0 < kept < rule.limits["steps"] and KINDS[recorded.run.manifest.kind].has_steps:
        needed = units.count(rule.limits["steps"])
        yield Seen(message("doubt.few_steps", steps=units.count(kept), needed=needed))


def unsteady(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    wide = {
        metric.name: half_width
        for metric in recorded.run.metrics
        if rule.may_mark(metric.name, recorded.run)
        and (half_width := reach(metric.interval, metric.value)) > rule.limits["half_width"]
    }
    if wide:
        shares = {"share": units.percent(max(wide.values())), "limit": units.percent(rule.limits["half_width"])}
        yield Seen(message("doubt.unsteady", names=list(wide), **shares), tuple(wide))


def throttled(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    metric = recorded.run.metric("throttled_share")
    if metric is None or metric.value is None or metric.value <= rule.limits["share"]:
        return
    reasons = [f"{reason} ({count})" for reason, count in metric.inputs.get("reasons", {}).items()]
    device = str(metric.inputs.get("device_id", ""))
    said = message("doubt.throttled", share=units.percent(metric.value), device=device, reasons=reasons)
    metrics = [each for each in recorded.run.metrics if each.value is not None]
    names = tuple(each.name for each in metrics if rule.may_mark(each.name, recorded.run))
    yield Seen(said, names, tuple(timed(recorded.run)))


def diverged(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for name in ("loss_first", "loss"):
        metric = recorded.run.metric(name)
        if metric is not None and metric.message is not None and _is_no_number(metric.message):
            yield Seen(metric.message)
            return


def _is_no_number(said: Message) -> bool:
    is_outside = said.code == "quality.out_of_range" and str(said.params.get("value")) in ("nan", "inf", "-inf")
    return said.code == "quality.diverged" or is_outside


CHECKS: tuple[tuple[str, Check], ...] = (
    ("above_peak", above_peak),
    ("tf32_called_fp32", tf32_called_fp32),
    ("few_repeats", few_steps),
    ("unsteady", unsteady),
    ("throttled", throttled),
    ("diverged", diverged),
)
