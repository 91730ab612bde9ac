"""One line for each step of a run: its loss over all ranks, and the times of its slowest rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flagperf.export.columns import Type
from flagperf.export.recorded import Exported
from flagperf.kinds import KINDS
from flagperf.metrics.curve import curve_point
from flagperf.metrics.finding import Absent
from flagperf.report.sections.naming import vendor_word
from flagperf.units import SECOND_NS

COLUMNS: dict[str, Type] = {
    "run": "text",
    "case": "text",
    "vendor": "text",
    "device": "text",
    "shape": "text",
    "precision": "text",
    "step": "integer",
    "warmup": "truth",
    "loss": "real",
    "samples": "integer",
    "compute_seconds": "real",
    "period_seconds": "real",
    "remark": "text",
}
"""Times are those of steps after warm-up: `compute_seconds` as in step_time_p50, `period_seconds` from the end of the
step before to the end of this one, without evaluation and logging."""


def curve_lines(each: Exported) -> Iterator[dict[str, Any]]:
    """None for a run without steps, or one whose steps cannot be used: `no_curve` says why."""
    observed = each.observed()
    loop, window, run = observed.loop, observed.window, each.run
    if isinstance(loop, Absent):
        return
    computes_ns, periods_ns = (
        ((), ()) if isinstance(window, Absent) else (window.step_computes_ns, window.step_periods_ns)
    )
    job = run.job
    head = {
        "run": run.id,
        "case": job.case,
        "vendor": vendor_word(run),
        "device": job.device_model.model,
        "shape": job.shape,
        "precision": job.precision.name,
    }
    for index in range(loop.num_steps):
        point, kept = curve_point(loop, index), index - loop.steps_dropped
        is_timed = 0 <= kept < len(computes_ns)
        yield {
            **head,
            "step": point.step,
            "warmup": kept < 0,
            "loss": point.loss,
            "samples": point.samples,
            "compute_seconds": computes_ns[kept] / SECOND_NS if is_timed else None,
            "period_seconds": periods_ns[kept] / SECOND_NS if is_timed else None,
            "remark": point.remark if "losses" in observed.kind.metrics else "",
        }


def no_curve(each: Exported) -> str:
    """Why a run has no lines. Empty if it has some."""
    loop = each.observed().loop
    if isinstance(loop, Absent):
        return f"{loop.reason}, {loop.detail}"
    if loop.num_steps:
        return ""
    return "it made none" if KINDS[each.run.manifest.kind].has_steps else "its case measures rows"
