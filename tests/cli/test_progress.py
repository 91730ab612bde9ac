from __future__ import annotations

from flagperf.cli.progress import AllNodes, describe
from flagperf.spec import Progress


def test_the_time_left_is_an_upper_bound_since_a_case_may_stop_at_its_target() -> None:
    progress = Progress(
        3, 10, samples_per_second=None, loss=None, used_bytes=None, seconds_left=125.0, phase="training"
    )
    assert describe(progress) == "step 3/10  at most 2 min 05 s left"


def test_samples_and_loss_are_those_of_all_nodes() -> None:
    first = Progress(3, 10, samples_per_second=0.0, loss=None, used_bytes=5, seconds_left=9.0, phase="training")
    second = Progress(2, 10, samples_per_second=4.5, loss=0.5, used_bytes=7, seconds_left=8.0, phase="starting")
    nodes = AllNodes()
    assert nodes.update(0, first) == first
    both = Progress(3, 10, samples_per_second=4.5, loss=0.5, used_bytes=7, seconds_left=9.0, phase="training")
    assert nodes.update(1, second) == both
