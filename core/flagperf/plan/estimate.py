"""How much of its card's memory a rank will need, as the case estimates it before anything is launched."""

from __future__ import annotations

import importlib

import msgspec

from flagperf.api import EstimateMemory
from flagperf.spec import Manifest, Resolved


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


def estimate_memory(
    manifest: Manifest, config: Resolved, total_bytes: int | None, source: str
) -> MemoryEstimate | None:
    """None for a case that does not estimate."""
    if manifest.estimate is None:
        return None
    module, _, name = manifest.estimate.partition(":")
    function: EstimateMemory = getattr(importlib.import_module(module), name)
    return MemoryEstimate(function(config.values), total_bytes, source)
