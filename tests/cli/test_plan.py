from __future__ import annotations

import msgspec
import pytest

from flagperf.api import PRECISIONS, Peak
from flagperf.cli.plan import peak_text, precision_text, shape_text
from flagperf.spec.job import Job
from run_builders import make_run


def job(**changes: object) -> Job:
    return msgspec.structs.replace(make_run("20260101T000000Z-demo-cpu-1x1-abc123").job, **changes)


def test_one_worker_is_no_plural() -> None:
    one = job()
    assert shape_text(one) == "1x1, 1 worker"
    two = msgspec.structs.replace(one.nodes[0], devices=one.nodes[0].devices * 2)
    assert shape_text(job(nodes=(two,), oversubscribed=True)) == "1x2, 2 workers, oversubscribed"


@pytest.mark.parametrize(
    ("confidence", "accepted", "is_used"),
    [("low", False, False), ("low", True, True), ("medium", False, True), ("high", False, True)],
)
def test_a_peak_that_mfu_will_not_use_is_said_to_be_unused(confidence: str, accepted: bool, is_used: bool) -> None:
    peak = msgspec.convert(
        {"model": "M1", "row": "fp32", "value": 15e12, "source": "a page", "confidence": confidence}, Peak
    )
    text = peak_text(peak, accepted)
    assert text.startswith(f"1.5e+13 FLOP/s (a page, {confidence}")
    assert ("--accept-low-peaks" in text) is not is_used


def test_a_peak_that_is_not_known_is_called_unknown() -> None:
    assert peak_text(None, accept_low_peaks=False) == "unknown"


def test_a_precision_says_how_weights_are_stored_unless_each_row_has_its_own() -> None:
    assert precision_text(PRECISIONS["amp-bf16"]) == "amp-bf16 (storage float32, compute bfloat16)"
    assert precision_text(PRECISIONS["per-row"]) == "per-row"
