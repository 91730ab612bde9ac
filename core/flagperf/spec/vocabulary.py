"""The names that a case.toml may use of what later stages make.

They stand here because a manifest is checked when it is read, before metrics and report are imported. A test compares
each list with the place where the things themselves are.
"""

from __future__ import annotations

LANGUAGES = ("en", "zh")

FORMULAS = ("nominal-6n", "nominal-2n", "palm", "palm-infer", "exact", "exact-lora", "exact-infer")
"""metrics/flops.py"""

METRICS = (
    "e2e_time", "init_time", "train_time", "p_whole", "p_train", "p_core", "p_whole_all", "token/p/s", "p_val_whole",
    "p_val_core", "p_infer_whole", "p_infer_core", "p_infer_padded", "step_time_p50",
    "step_time_p90", "step_time_p99", "data_wait_share", "padding_ratio", "steps_kept", "steps_dropped",
    "samples_kept", "tflops_per_device", "mfu", "mfu_useful", "mfu_nominal-6n", "mfu_nominal-2n", "mfu_palm",
    "mem_used", "mem_total", "mem_baseline", "mem_allocator", "mem_remainder", "probe_cost", "cpu_others", "loss",
    "loss_first",
)  # fmt: skip
"""metrics/definitions.py"""

REPORT_METRICS = ("loss_aligned",)
"""metrics/aligned.py: of a run and something that is not in its bundle, so made for a report."""

PAGE_COLUMNS = (
    "configuration", "precision", "parallel", "fix_hp", "e2e_time", "p_whole", "p_train", "p_core", "token/p/s",
    "engine", "p_val_whole", "p_val_core", "p_infer_whole", "p_infer_core", "p_infer_padded", "loss", "loss_aligned",
    "mem", "mfu",
)  # fmt: skip
"""report/sections/columns.py. A case's own qualities are columns too."""

PAGE_ROWS = (
    "task", "model", "dataset", "precision", "parallel", "fix_hp", "device", "mem", "e2e_time", "p_whole", "p_train",
    "p_core", "token/p/s", "engine", "p_val_whole", "p_val_core", "p_infer_whole", "p_infer_core", "p_infer_padded",
    "mfu", "loss", "loss_aligned", "result", "extra",
)  # fmt: skip
"""report/sections/rows.py. A case's own qualities are rows too."""

PAGE_PARTS = ("parallelism", "optimisation", "batch_size")
"""report/sections/strategies.py"""
