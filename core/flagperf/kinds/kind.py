"""Kind: one way of measuring."""

from __future__ import annotations

from typing import Literal

import msgspec

RESULTS = ("results", "batch_sizes", "general", "performance", "rows", "published", "notes")
"""The sections that end a page."""

Text = dict[str, str]
"""One text in several languages: {"en": ..., "zh": ...}."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As case.toml writes it, and the name of the measured span: the loop that the throughputs are of."""
    values: str
    """The group of the case's values that has `batch_size` and `warmup_steps`."""
    metrics: tuple[str, ...]
    """Groups of metrics (MetricEntry.group) that a run of this kind has, in this order. Qualities of the case and the
    target come after them."""
    headline: tuple[str, ...]
    """Metrics that name the result, marked wherever they are shown."""
    pauses: tuple[str, ...] = ("evaluation", "logging")
    """Spans inside the measured one that are not work of it."""
    mfu_duration: dict[Literal["samples", "tokens"], Literal["train", "core"]]
    """What MFU divides by, for cases that count samples and for those that count tokens: see docs/metrics.md."""
    mfu_formulas: dict[str, str]
    """Metric -> formula id, of the MFU by other formulas that stands beside the case's own."""
    card: tuple[str, ...]
    """Speeds on the card that a terminal shows."""
    timed: str
    """The metric that says how steps were timed."""
    sections: tuple[str, ...]
    """Of a page, in this order, by the names of report.page.SECTIONS."""
    loop: Text
    """What the measured span is called in a sentence."""
    step: str = "step"
    """What progress calls a step of it."""
    words: dict[str, Text] = {}
    """Labels that this kind words differently from the catalogue."""
