"""Inference: a loop of forward passes over the data, a step for each batch."""

from __future__ import annotations

from flagperf.kinds.kind import Kind

INFERENCE = Kind(
    name="inference",
    values="inference",
    metrics=("job", "inference_speed", "steps", "flops", "memory", "power", "host"),
    headline=("p_val_core", "p_infer_core", "mfu"),
    mfu_duration={"samples": "core", "tokens": "core"},
    mfu_formulas={"mfu_nominal-2n": "nominal-2n", "mfu_palm": "palm-infer"},
)
