"""A running run on one screen, at any width."""

from __future__ import annotations

import pytest

from flagperf.bundle.live_run import RankNow, RunNow
from flagperf.cli.watch import paint
from flagperf.spec.protocol import EvaluationProgress, RankPace

GIB = 1 << 30


def rank(number: int, phase: str = "training", **fields: object) -> RankNow:
    known = {"step_seconds": 0.1017, "loss": 0.25, "used_bytes": 30 * GIB, "total_bytes": 64 * GIB}
    usual = {"power_watts": 310.0, "utilisation_percent": 98.0, "temperature_celsius": 61.0, **known, **fields}
    return RankNow(number, number // 8, f"node{number // 8}", "X1", f"card-{number}", phase, 1200, **usual)


def now(*ranks: RankNow, **fields: object) -> RunNow:
    usual = {
        "id": "20260101T000000Z-demo-acme-2x8-abc123",
        "case": "demo",
        "kind": "training",
        "profile": "standard",
        "vendor": "acme",
        "device": "X1",
        "shape": "2x8",
        "precision": "bf16",
        "status": "running",
        "host": "login1",
        "is_over": False,
        "elapsed_seconds": 125.0,
        "phase": "training",
        "step": 1200,
        "planned_steps": 100_000,
        "evaluation": None,
        "samples_per_second": 1234.5,
        "loss": 0.25,
        "median_step_seconds": 0.1017,
        "slowest": RankPace(3, 0.125),
        "seconds_left": 7260.0,
        "power_watts": 4960.0,
    }
    return RunNow(**{**usual, **fields}, ranks=ranks)


def painted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], state: RunNow, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    paint(state)
    printed = capfd.readouterr().out
    assert "\x1b" not in printed
    lines = printed.splitlines()
    assert max(map(len, lines)) <= width
    return lines


def words(line: str) -> str:
    return " ".join(line.split())


def test_wide(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    lines = painted(monkeypatch, capfd, now(*map(rank, range(16))), 200)
    assert lines[0] == "demo standard, acme X1, 2x8, bf16  running on login1, 2 min 05 s"
    assert "1%  training  step 1,200/100,000  ETA 2 h 01 min" in lines[3]
    assert lines[4] == "step time 101.7 ms  1234.5 samples/s  loss 0.25  power 4960 W  slowest rank 3 (+23%)"
    assert words(lines[6]) == "RANK NODE DEVICE STEP STEP TIME LOSS MEMORY POWER BUSY TEMP"
    assert words(lines[-1]) == "15 1 node1 X1 card-15 1,200 101.7 ms 0.25 30.0/64.0 GiB 310 W 98% 61 C"


@pytest.mark.parametrize("width", [24, 30, 46, 60, 80, 100, 200])
def test_no_width_cuts_a_figure(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], width: int) -> None:
    lines = painted(monkeypatch, capfd, now(*map(rank, range(16))), width)
    assert not any("…" in line for line in lines)
    assert lines[-1].split()[0] == "15"


def test_columns_without_a_word_are_left_out_and_phases_that_differ_are_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = {"power_watts": None, "utilisation_percent": None, "temperature_celsius": None, "loss": None}
    state = now(rank(0, **bare), rank(1, "waiting", **bare), power_watts=None, loss=None)
    lines = painted(monkeypatch, capfd, state, 120)
    assert words(lines[6]) == "RANK DEVICE PHASE STEP STEP TIME MEMORY"
    assert "waiting" in lines[-1]


def test_an_evaluation_is_shown_with_its_own_progress(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    state = now(rank(0), evaluation=EvaluationProgress(120, 872, 33.0))
    assert "evaluation 120/872 rows  33.0 rows/s  ETA 23 s" in painted(monkeypatch, capfd, state, 80)


def test_text_of_others_controls_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    state = now(rank(0), case="\x1b[2J[bold]x[/bold]", host="a\nb")
    lines = painted(monkeypatch, capfd, state, 120)
    assert lines[0].startswith("\\x1b[2J[bold]x[/bold] standard")
    assert "on a b," in lines[0]
