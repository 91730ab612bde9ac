"""Kind: how cases of one kind are measured and reported."""

from __future__ import annotations

from typing import Literal

import msgspec

RESULTS = ("results", "batch_sizes", "general", "performance", "rows", "published", "spread", "notes")
"""The last sections of every page."""

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
    card: tuple[str, ...] = ()
    """Throughput metrics on the card of a run."""
    timed: str = ""
    """The metric whose inputs record how steps were timed. Empty without steps."""
    sections: tuple[str, ...]
    """Sections of a page, in order: keys of report.page.SECTIONS."""
    loop: Text
    """Name of the measured span in sentences."""
    step: str = "step"
    """Name of a step in progress output."""
    replays: bool = False
    """Its cases can measure the recorded operators of another run."""
    words: dict[str, Text] = {}
    """Labels that differ from those in the message catalogue."""
