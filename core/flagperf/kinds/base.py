"""Base: what the hardware does at most, row by row: products of matrices, memory, links, collectives."""

from __future__ import annotations

from flagperf.kinds.kind import MEASURED_WORDS, Kind

BASE = Kind(
    name="base",
    values="measure",
    metrics=("job", "memory", "power", "host"),
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
