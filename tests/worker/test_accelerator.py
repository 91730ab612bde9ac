"""accelerate runs N trainings of one process each, and succeeds, where its environment does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flagperf.api import precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import Unsupported

pytestmark = pytest.mark.run


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """accelerate keeps one state per process."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_world_of_another_size_is_an_error() -> None:
    from flagperf.worker.accelerator import make_accelerator

    with pytest.raises(RuntimeError, match="accelerate sees 1 processes, but the job has 2"):
        make_accelerator(CpuBackend(), precision("fp32"), 2, "cpu")


def test_a_precision_that_would_be_ignored_is_unsupported() -> None:
    from flagperf.worker.accelerator import make_accelerator

    with pytest.raises(Unsupported, match="amp-fp16"):
        make_accelerator(CpuBackend(), precision("amp-fp16"), 1, "cpu")
