"""Kinds of case. Each kind is one module in this package; no other code checks for a kind by name.

A kind defines the measured loop, the metrics of a run, the sections of its page and their wording. It is data only:
formulas and sections are looked up by name.
"""

from __future__ import annotations

from flagperf.kinds.base import BASE
from flagperf.kinds.inference import INFERENCE
from flagperf.kinds.kind import Kind
from flagperf.kinds.operators import OPERATORS
from flagperf.kinds.training import TRAINING

__all__ = ["BASE", "INFERENCE", "KINDS", "OPERATORS", "TRAINING", "Kind"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (TRAINING, INFERENCE, BASE, OPERATORS)}
