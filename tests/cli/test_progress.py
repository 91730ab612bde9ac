from __future__ import annotations

from flagperf.cli.progress import describe
from flagperf.spec import Progress


def test_the_time_left_is_an_upper_bound_since_a_case_may_stop_at_its_target() -> None:
    progress = Progress(
        3, 10, samples_per_second=None, loss=None, used_bytes=None, seconds_left=125.0, phase="training"
    )
    assert describe(progress) == "step 3/10  at most 2 min 05 s left"
