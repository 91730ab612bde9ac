"""Kinds of case: what a case is measured by. Each kind is one module here, and nothing else asks for a kind by name.

A kind says which loop is measured, which metrics a run of it has, which sections its page has, and in which words.
It is data: formulas and sections are looked up by their names.
"""

from __future__ import annotations

from flagperf.kinds.inference import INFERENCE
from flagperf.kinds.kind import Kind
from flagperf.kinds.training import TRAINING

__all__ = ["INFERENCE", "KINDS", "TRAINING", "Kind"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (TRAINING, INFERENCE)}
