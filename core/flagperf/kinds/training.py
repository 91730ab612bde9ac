"""Training: a loop of optimizer steps over samples, with evaluations in between."""

from __future__ import annotations

from flagperf.kinds.kind import RESULTS, Kind

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
    card=("p_whole", "p_train", "p_core", "token/p/s"),
    timed="p_core",
    sections=("downloads", "subject", "environment", "strategies", *RESULTS),
    loop={"en": "training", "zh": "训练"},
)
