from __future__ import annotations

from typing import Any

import click
import pytest

from flagperf.cli.progress import CombinedProgress, describe, live_progress
from flagperf.kinds import KINDS
from flagperf.spec.protocol import EvaluationProgress, Progress, RankPace


def progress(step: int, **figures: Any) -> Progress:
    fields = {"samples_per_second": None, "loss": None, "used_bytes": None, "seconds_left": None, "phase": "training"}
    return Progress(step, 10, **{**fields, **figures})


def combined(*nodes: Progress) -> Progress:
    found = CombinedProgress()
    for index, each in reversed(list(enumerate(nodes))):
        found.update(index, each)
    return found.combined()


def test_progress_is_that_of_all_nodes() -> None:
    first = progress(3, samples_per_second=0.0, used_bytes=5, seconds_left=9.0, power_watts=900.0)
    second = progress(2, samples_per_second=4.5, loss=0.5, used_bytes=7, phase="starting", power_watts=9200.0)
    assert combined(first) == first
    both = progress(3, samples_per_second=4.5, loss=0.5, used_bytes=7, seconds_left=9.0, power_watts=10100.0)
    assert combined(first, second) == both
    assert describe(both, KINDS["training"]) == (
        "step 3/10  4.5 samples/s  loss 0.5  mem 0.0 GiB  power 10.1 kW  ETA 9 s"
    )


def test_power_is_that_of_all_cards_or_not_shown() -> None:
    assert combined(progress(1, power_watts=300.0), progress(1)).power_watts is None
    shown = progress(1, power_watts=412.4, seconds_left=125.0)
    assert describe(shown, KINDS["training"]) == "step 1/10  power 412 W  ETA 2 min 05 s"


def test_the_slowest_rank_of_all_nodes_is_named_where_ranks_differ() -> None:
    nodes = [
        progress(9, median_step_seconds=0.1, slowest=RankPace(rank, seconds))
        for rank, seconds in ((0, 0.105), (3, 0.146), (5, 0.11))
    ]
    assert describe(combined(*nodes), KINDS["training"]) == "step 9/10  slowest rank 3 (+46%)"
    assert describe(combined(nodes[0]), KINDS["training"]) == "step 9/10"


def test_reports_of_many_nodes_are_put_together_only_when_they_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, counted = [100.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    put_together = CombinedProgress.combined
    monkeypatch.setattr(CombinedProgress, "combined", lambda self: counted.append(1) or put_together(self))
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with click.Context(click.Command("run")), live_progress(KINDS["training"]) as update:
        for step in (0, 1, 2):
            for node in range(50):
                update(node, progress(step))
            now[0] += 5.0
    assert len(counted) == 3
    assert capsys.readouterr().err.splitlines() == ["step 1/10", "step 2/10"]


def test_an_evaluation_stands_in_place_of_the_speed_of_training() -> None:
    evaluation = EvaluationProgress(rows=1000, planned_rows=14042, rows_per_second=104.336)
    shown = progress(2, samples_per_second=3.0, loss=1.5, used_bytes=1, phase="finishing", evaluation=evaluation)
    assert describe(shown, KINDS["training"]) == "step 2/10  evaluation 1000/14042 rows  104.3 rows/s  ETA 2 min 05 s"
