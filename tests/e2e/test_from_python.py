"""flagperf.run_case gives the Run that the command line prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import flagperf
from flagperf.errors import BadInput
from flagperf.plausibility.doubts import read_marked

SMALL = ("training.max_steps=4", "training.warmup_steps=1", "evaluation.max_rows=64")


@pytest.mark.run
def test_run_case_returns_the_recorded_run(tmp_path: Path) -> None:
    recorded = flagperf.run_case("distilbert", runs_dir=str(tmp_path), set=SMALL)
    assert recorded.run.ending is not None
    assert recorded.run.ending.status == "succeeded", recorded.run.ending.reason
    assert [recorded] == read_marked([Path(recorded.path)])


def test_bad_input_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="distilbert"):
        flagperf.run_case("distilbrt", runs_dir=str(tmp_path / "runs"))
    with pytest.raises(BadInput, match="nodes"):
        flagperf.run_case("distilbert", runs_dir=str(tmp_path / "runs"), nodes=0)
    with pytest.raises(BadInput, match="device"):
        flagperf.run_case("distilbert", runs_dir=str(tmp_path / "runs"), device=2)
    with pytest.raises(BadInput, match="devices"):
        flagperf.run_case("distilbert", runs_dir=str(tmp_path / "runs"), devices="2")
    assert list(tmp_path.iterdir()) == []
