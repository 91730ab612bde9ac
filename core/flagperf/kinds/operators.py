"""Operators: single operators of the framework, each on shapes of its own."""

from __future__ import annotations

from flagperf.kinds.kind import MEASURED_WORDS, Kind

OPERATORS = Kind(
    name="operators",
    values="measure",
    metrics=("job", "memory", "power", "host"),
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
