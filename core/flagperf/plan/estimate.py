"""How much of its card's memory a rank will need, as the case estimates it before anything is launched."""

from __future__ import annotations

import importlib

import msgspec

from flagperf.api import EstimateMemory
from flagperf.plugins.installed import Case
from flagperf.plugins.loading import ask
from flagperf.spec import Resolved


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Of the fullest rank. `total_bytes` is what the card has; None where it is unknown."""

    parts: dict[str, int]
    total_bytes: int | None
    total_source: str

    @property
    def used_bytes(self) -> int:
        return sum(self.parts.values())

    @property
    def share(self) -> float | None:
        """Of the card; None where its size is unknown."""
        return self.used_bytes / self.total_bytes if self.total_bytes else None


def estimate_memory(case: Case, config: Resolved, total_bytes: int | None, source: str) -> MemoryEstimate | None:
    """None for a case that does not estimate."""
    reference = case.manifest.estimate
    if reference is None:
        return None
    parts = ask(case.plugin, reference, lambda: _function(reference)(config.values), dict[str, int])
    return MemoryEstimate(parts, total_bytes, source)


def _function(reference: str) -> EstimateMemory:
    module, _, name = reference.partition(":")
    function: EstimateMemory = getattr(importlib.import_module(module), name)
    return function
