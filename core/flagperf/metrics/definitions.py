"""The metrics that every run has, in the order in which they are given. docs/metrics.md has a section for each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from flagperf.metrics.finding import Absent, Finding
from flagperf.metrics.metric import Mark, Metric
from flagperf.spec import Quality

Scope = Literal["job", "system", "device", "rank"]

SPEED: tuple[Mark, ...] = ("oversubscribed", "busy_host")
CARD: tuple[Mark, ...] = ("unverified_mapping",)


class Definition(msgspec.Struct, frozen=True):
    name: str
    unit: str
    scope: Scope
    marks: tuple[Mark, ...] = ()
    """Marks of the run that concern this metric. `torn_record` concerns all."""
    heading: str = ""

    def metric(self, finding: Finding, run_marks: Collection[Mark] = ()) -> Metric:
        heading = self.heading or self.name
        if isinstance(finding, Absent):
            return Metric(
                self.name, self.unit, heading, self.scope,
                reason=finding.reason, detail=finding.detail, inputs=finding.inputs,
            )  # fmt: skip
        concerned = tuple(mark for mark in run_marks if mark in self.marks or mark == "torn_record")
        marks = tuple(dict.fromkeys(finding.marks + concerned))
        return Metric(
            self.name, self.unit, heading, self.scope,
            value=finding.value, marks=marks, interval=finding.interval, inputs=finding.inputs,
        )  # fmt: skip


DEFINITIONS = (
    Definition("e2e_time", "s", "job"),
    Definition("init_time", "s", "job"),
    Definition("train_time", "s", "job"),
    Definition("p_whole", "samples/s", "system", SPEED),
    Definition("p_train", "samples/s", "system", SPEED),
    Definition("p_core", "samples/s", "system", SPEED),
    Definition("p_whole_all", "samples/s", "system", SPEED),
    Definition("token/p/s", "tokens/s", "device", SPEED),
    Definition("p_val_whole", "samples/s", "system", SPEED),
    Definition("p_val_core", "samples/s", "system", SPEED),
    Definition("p_infer_whole", "samples/s", "system", SPEED),
    Definition("p_infer_core", "samples/s", "system", SPEED),
    Definition("p_infer_padded", "samples/s", "system", SPEED),
    Definition("step_time_p50", "s", "system", SPEED),
    Definition("step_time_p90", "s", "system", SPEED),
    Definition("step_time_p99", "s", "system", SPEED),
    Definition("data_wait_share", "share", "rank"),
    Definition("padding_ratio", "share", "system"),
    Definition("steps_kept", "steps", "job"),
    Definition("steps_dropped", "steps", "job"),
    Definition("samples_kept", "samples", "system"),
    Definition("tflops_per_device", "TFLOP/s", "device", SPEED),
    Definition("mfu", "share", "device", SPEED + CARD),
    Definition("mfu_useful", "share", "device", SPEED + CARD),
    Definition("mfu_nominal-6n", "share", "device", SPEED + CARD),
    Definition("mfu_nominal-2n", "share", "device", SPEED + CARD),
    Definition("mfu_palm", "share", "device", SPEED + CARD),
    Definition("mem_used", "bytes", "device", CARD),
    Definition("mem_total", "bytes", "device", CARD),
    Definition("mem_baseline", "bytes", "device", CARD),
    Definition("mem_allocator", "bytes", "rank", CARD),
    Definition("mem_remainder", "bytes", "device", CARD),
    Definition("probe_cost", "share", "job"),
    Definition("cpu_others", "share", "job"),
    Definition("loss", "", "system"),
    Definition("loss_first", "", "system"),
)

TARGET = Definition("target", "", "job")
"""Comes last, after the qualities of the case."""


def quality_definition(quality: Quality) -> Definition:
    return Definition(quality.name, quality.unit, "job", heading="quality")
