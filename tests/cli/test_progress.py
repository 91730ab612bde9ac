from __future__ import annotations

from flagperf.cli.progress import CombinedProgress, describe
from flagperf.kinds import KINDS
from flagperf.spec import EvaluationProgress, Progress


def test_the_time_left_is_shown_as_eta() -> None:
    progress = Progress(
        3, 10, samples_per_second=None, loss=None, used_bytes=None, seconds_left=125.0, phase="training"
    )
    assert describe(progress, KINDS["training"]) == "step 3/10  ETA 2 min 05 s"


def test_samples_and_loss_are_those_of_all_nodes() -> None:
    first = Progress(3, 10, samples_per_second=0.0, loss=None, used_bytes=5, seconds_left=9.0, phase="training")
    second = Progress(2, 10, samples_per_second=4.5, loss=0.5, used_bytes=7, seconds_left=8.0, phase="starting")
    nodes = CombinedProgress()
    assert nodes.update(0, first) == first
    both = Progress(3, 10, samples_per_second=4.5, loss=0.5, used_bytes=7, seconds_left=9.0, phase="training")
    assert nodes.update(1, second) == both


def test_an_evaluation_stands_in_place_of_the_speed_of_training() -> None:
    evaluation = EvaluationProgress(rows=1000, planned_rows=14042, rows_per_second=104.336)
    progress = Progress(
        2,
        2,
        samples_per_second=3.0,
        loss=1.5,
        used_bytes=1,
        seconds_left=None,
        phase="finishing",
        evaluation=evaluation,
    )
    assert describe(progress, KINDS["training"]) == "step 2/2  evaluation 1000/14042 rows  104.3 rows/s  ETA 2 min 05 s"
