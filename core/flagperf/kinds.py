"""Kinds of case. Each kind is one module in this package; no other code checks for a kind by name.

A kind defines the measured loop, the metrics of a run, the sections of its page and their wording. It is data only:
formulas and sections are looked up by name.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# Kind: how cases of one kind are measured and reported.


RESULTS = ("results", "batch_sizes", "general", "performance", "rows", "published", "spread", "notes")
"""The last sections of every page."""

POWER = ("power_mean", "energy", "utilisation_mean")
"""What a summary shows of power, where it was measured."""

Text = dict[str, str]
"""One text in several languages: {"en": ..., "zh": ...}."""

MEASURED_WORDS: dict[str, Text] = {
    "general": {"en": "What was measured", "zh": "评测内容"},
    "framework": {"en": "Framework", "zh": "框架版本"},
}
"""Of kinds that measure rows: nothing is trained, and no table refers to another."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name in case.toml. Also the name of the measured span, the loop that the throughputs refer to."""
    values: str
    """The group of configuration values that has `batch_size` and `warmup_steps`."""
    metrics: tuple[str, ...]
    """Metric groups (MetricEntry.group) of a run of this kind, in order. The case's qualities and the target follow."""
    headline: tuple[str, ...] = ()
    """The main results, marked wherever they are shown. A case's own figures say so themselves."""
    has_steps: bool = True
    """False: its cases measure rows, and the measured window is the whole span."""
    pauses: tuple[str, ...] = ("evaluation", "logging")
    """Spans inside the measured span that do not count as work."""
    mfu_duration: dict[Literal["samples", "tokens"], Literal["train", "core"]] = {}
    """The duration used for MFU, for cases that count samples and cases that count tokens: see docs/metrics.md."""
    mfu_formulas: dict[str, str] = {}
    """Metric -> formula id, for additional MFU metrics besides the one with the case's formula."""
    summary: tuple[str, ...]
    """The figures of a run's summary, in order: metrics, names of several metrics in one cell (report.summary.JOINED),
    and `qualities`, which stands for those of the case."""
    details: tuple[str, ...] = ("cpu_others",)
    """Metrics that the overview in a terminal shows below these."""
    phases: tuple[str, ...] = ()
    """The times of which the end-to-end time consists."""
    timed: str = ""
    """The metric whose inputs record how steps were timed. Empty without steps."""
    sections: tuple[str, ...]
    """Names of the sections of a published page, in order."""
    loop: Text
    """Name of the measured span in sentences."""
    step: str = "step"
    """Name of a step in progress output."""
    work: str = "samples"
    """What progress output counts per second."""
    replays: bool = False
    """Its cases can measure the recorded operators of another run."""
    words: dict[str, Text] = {}
    """Labels that differ from those in the message catalogue."""


# Training: a loop of optimizer steps over samples, with evaluations in between.


TRAINING = Kind(
    name="training",
    values="training",
    metrics=(
        "job",
        "training_times",
        "training_speed",
        "steps",
        "flops",
        "training_flops",
        "memory",
        "power",
        "host",
        "losses",
    ),
    headline=("p_core", "token/p/s", "mfu"),
    mfu_duration={"samples": "core", "tokens": "train"},
    mfu_formulas={"mfu_nominal-6n": "nominal-6n", "mfu_nominal-2n": "nominal-2n", "mfu_palm": "palm"},
    summary=(
        "e2e_time",
        "p_whole",
        "p_train",
        "p_core",
        "token/p/s",
        "step_time",
        "qualities",
        "loss",
        "mem",
        "mfu",
        *POWER,
    ),
    details=("padding_ratio", "steps_kept", "steps_dropped", "cpu_others"),
    phases=("init_time", "train_time"),
    timed="p_core",
    sections=("downloads", "subject", "environment", "strategies", *RESULTS),
    loop={"en": "training", "zh": "训练"},
)

# Inference: a loop of forward passes over the data, one step per batch.


INFERENCE = Kind(
    name="inference",
    values="inference",
    metrics=("job", "inference_speed", "steps", "flops", "memory", "power", "host"),
    headline=("p_val_core", "p_infer_core", "mfu"),
    mfu_duration={"samples": "core", "tokens": "core"},
    mfu_formulas={"mfu_nominal-2n": "nominal-2n", "mfu_palm": "palm-infer"},
    summary=(
        "e2e_time",
        "p_val_core",
        "p_infer_whole",
        "p_infer_core",
        "p_infer_padded",
        "step_time",
        "qualities",
        "mem",
        "mfu",
        *POWER,
    ),
    details=("padding_ratio", "steps_kept", "steps_dropped", "cpu_others"),
    timed="p_infer_core",
    sections=("dataset", "weights", "machine", "strategies", "environment", "engine", *RESULTS),
    loop={"en": "inference", "zh": "推理"},
    step="batch",
    words={
        "results": {"en": "4. Results", "zh": "4. 运行情况"},
        "general": {"en": "Metric list", "zh": "指标列表"},
        "performance": {"en": "Values", "zh": "指标值"},
        "head_value": {"en": "Value index", "zh": "指标值索引"},
        "framework": {"en": "Framework", "zh": "推理框架版本"},
        "row_mfu": {"en": "MFU", "zh": "计算卡使用率"},
        "row_loss": {"en": "Loss", "zh": "推理结果"},
        "row_result": {"en": "Result", "zh": "推理结果"},
    },
)

# Base: what the hardware does at most, row by row: products of matrices, memory, links, collectives.


BASE = Kind(
    name="base",
    values="measure",
    metrics=("job", "memory", "power", "host"),
    summary=("e2e_time", "mem", *POWER),
    has_steps=False,
    sections=(
        "subject",
        "environment",
        "results",
        "general",
        "figures",
        "telemetry",
        "rows",
        "published",
        "spread",
        "notes",
    ),
    loop={"en": "measurement", "zh": "测量"},
    step="row",
    words=MEASURED_WORDS,
)

# Operators: single operators of the framework, each on shapes of its own.


OPERATORS = Kind(
    name="operators",
    values="measure",
    metrics=("job", "memory", "power", "host"),
    summary=("e2e_time", "mem", *POWER),
    has_steps=False,
    replays=True,
    sections=(
        "subject",
        "environment",
        "results",
        "general",
        "figures",
        "operator_rows",
        "replayed",
        "telemetry",
        "published",
        "notes",
    ),
    loop={"en": "measurement", "zh": "测量"},
    step="row",
    words=MEASURED_WORDS,
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in (TRAINING, INFERENCE, BASE, OPERATORS)}
