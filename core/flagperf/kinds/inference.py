"""Inference: a loop of forward passes over the data, one step per batch."""

from __future__ import annotations

from flagperf.kinds.kind import RESULTS, Kind

INFERENCE = Kind(
    name="inference",
    values="inference",
    metrics=("job", "inference_speed", "steps", "flops", "memory", "power", "host"),
    headline=("p_val_core", "p_infer_core", "mfu"),
    mfu_duration={"samples": "core", "tokens": "core"},
    mfu_formulas={"mfu_nominal-2n": "nominal-2n", "mfu_palm": "palm-infer"},
    card=("p_infer_whole", "p_infer_core", "p_infer_padded"),
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
