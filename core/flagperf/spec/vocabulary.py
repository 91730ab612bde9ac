"""The names that a case.toml may use."""

from __future__ import annotations

import msgspec

PAGE_COLUMNS = ("configuration", "precision", "parallel", "fix_hp", "engine", "loss_aligned", "mem")
"""Columns that are no metric of the registry. Every metric, and every quality of the case, is a column too."""

PAGE_ROWS = (
    "task", "model", "dataset", "precision", "parallel", "fix_hp", "device", "engine", "loss_aligned", "mem", "result",
    "extra",
)  # fmt: skip
"""Likewise, of the general table."""

PAGE_PARTS = ("parallelism", "optimisation", "batch_size")
"""Further sections that a case may ask for."""

REPORT_METRICS = ("loss_aligned",)
"""Made of a run and something that is not in its bundle, so when a report is."""


class Vocabulary(msgspec.Struct, frozen=True):
    """What later stages have. They give it to whoever reads a case.toml."""

    kinds: tuple[str, ...]
    metrics: tuple[str, ...]
    formulas: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*PAGE_COLUMNS, *self.metrics)

    @property
    def rows(self) -> tuple[str, ...]:
        return (*PAGE_ROWS, *self.metrics)
