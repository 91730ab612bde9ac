"""Loss curves without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flagperf.metrics.alignment import CurveData, CurvePoint, LossCurve

STATED: dict[str, Any] = {
    "case_version": 1,
    "model": {"parameters": 1000, "layers": 2},
    "data": (CurveData("train", "ab" * 32),),
    "values": {"training.seed": 0},
}


def curve(
    losses: Mapping[int, float | None] | Sequence[float | None], samples: int | None = 8, **more: Any
) -> LossCurve:
    """Losses by step, or from step 1 on."""
    by_step = losses if isinstance(losses, Mapping) else dict(enumerate(losses, start=1))
    points = tuple(
        CurvePoint(step, loss, samples, "" if loss is not None else f"step {step} has no finite loss on rank 0")
        for step, loss in by_step.items()
    )
    return LossCurve(**{"case": "toy", **STATED, "points": points, **more})
