"""The names that case.toml may use."""

from __future__ import annotations

import msgspec

PAGE_COLUMNS = ("configuration", "precision", "parallel", "fix_hp", "engine", "loss_aligned", "mem")
"""Columns that are not metrics. Every metric and every quality of the case is a column too."""

PAGE_ROWS = (
    "task",
    "model",
    "dataset",
    "precision",
    "parallel",
    "fix_hp",
    "device",
    "engine",
    "loss_aligned",
    "mem",
    "result",
    "extra",
)
"""Rows of the general table that are not metrics."""

PAGE_PARTS = ("parallelism", "optimisation", "batch_size")
"""Optional sections of a page."""

REPORT_METRICS = ("loss_aligned",)
"""Metrics that need more than the bundle of a run. They are computed for a report."""


class Vocabulary(msgspec.Struct, frozen=True):
    """Names defined by later stages, passed to the code that reads a case.toml."""

    kinds: tuple[str, ...]
    metrics: tuple[str, ...]
    formulas: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*PAGE_COLUMNS, *self.metrics)

    @property
    def rows(self) -> tuple[str, ...]:
        return (*PAGE_ROWS, *self.metrics)
