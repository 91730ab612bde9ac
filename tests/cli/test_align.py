"""flagperf align and runs curve, on bundles and on files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from curve_bundles import FALLING, bundle_of, make_bundle, scaled
from metric_builders import make_job

from flagperf.cli import run_cli

REPLAYS = Path(__file__).parents[1] / "replays"


pytestmark = pytest.mark.usefixtures("empty_folder")


def replayed(replay: str) -> Path:
    """A run of two ranks whose raw files are those of a replay."""
    path = bundle_of(replay, make_job([2], warmup_steps=2, run_id=replay))
    shutil.copytree(REPLAYS / replay, path, dirs_exist_ok=True)
    return path


def table_of(capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Label -> value and note of what was printed; a line without a label goes on with the one before it."""
    found: dict[str, str] = {}
    for line in capfd.readouterr().out.splitlines():
        label, rest = line.split("  ", 1)
        label = label or list(found)[-1]
        found[label] = " ".join([found.get(label, ""), *rest.split()]).strip()
    return found


def test_a_run_that_follows_its_reference_is_aligned(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", scaled(1.01))
    make_bundle("b", FALLING)
    assert run_cli(["align", "a", "b"]) == 0
    table = table_of(capfd)
    assert table == {
        "run": "a toy, acme, A, 1x1, fp16, tiny",
        "reference": "b toy, acme, A, 1x1, fp16, tiny",
        "rule": "flagperf-2pct mean relative error below 2% from step 21 on",
        "steps judged": "10 21 to 30, of 1 to 30",
        "mean error": "1%",
        "largest error": table["largest error"],
        "first above limit": "none",
        "drift": table["drift"],
        "aligned": "True",
    }
    assert table["largest error"].startswith("1% step ")


def test_a_run_that_does_not_follow_ends_with_7(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", [*FALLING[:25], *scaled(1.5)[25:]])
    make_bundle("b", FALLING)
    assert run_cli(["align", "a", "b"]) == 7
    table = table_of(capfd)
    assert table["mean error"] == "25%"  # five of ten steps are off by half
    assert table["first above limit"] == "step 26 50%"
    assert table["aligned"] == "False the mean error is not within the limit"


def test_a_curve_that_was_exported_stands_for_its_run(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", scaled(1 / 3), num_ranks=2)
    assert run_cli(["runs", "curve", "a"]) == 0
    Path("reference.csv").write_text(capfd.readouterr().out)
    for words in (["a", "reference.csv"], ["reference.csv", "a"], ["reference.csv", "reference.csv"]):
        assert run_cli(["align", *words, "--rule", "exact"]) == 0
    shutil.rmtree("runs")
    assert run_cli(["align", "reference.csv", "reference.csv"]) == 0


def test_runs_of_different_shapes_are_compared_and_what_differs_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", scaled(1 + 1e-7), num_ranks=4, parallel__tp=4, training__batch_size=2)
    make_bundle("b", FALLING, parallel__tp=1, training__batch_size=8)
    assert run_cli(["align", "a", "b", "--rule", "exact"]) == 7
    printed = capfd.readouterr()
    assert "values that differ  2" in printed.out
    assert "parallel.tp 4 vs. 1, training.batch_size 2 vs. 8" in printed.out
    assert "`--tolerance 1e-5`" in printed.err
    assert run_cli(["align", "a", "b", "--rule", "exact", "--tolerance", "1e-5"]) == 0
    table = table_of(capfd)
    assert table["rule"] == "exact relative error of at most 1e-5 at every step"
    assert table["mean error"] == "1e-7"


def test_a_loss_that_diverged_is_said_and_fails_the_check(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", [*FALLING[:25], *[None] * 5])
    make_bundle("b", FALLING)
    assert run_cli(["align", "a", "b"]) == 7
    table = table_of(capfd)
    assert table["mean error"] == "0% over the 5 steps that can be compared"
    assert table["not comparable"].startswith("5 step 26, RUN: training diverged: the loss of step 26 is not a finite")
    assert table["not comparable"].endswith("; and 2 more")
    assert table["aligned"].startswith("False every step needs a finite loss")


def test_json_has_all_figures_and_what_was_compared(capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", [None, *scaled(1.5)[1:]], precision="bf16")
    Path("b.csv").write_text(
        '# flagperf loss curve 1\n# case: "toy"\n# values.precision: "fp32"\nstep,loss\n'
        + "".join(f"{n},{loss!r}\n" for n, loss in enumerate(FALLING, start=1))
    )
    assert run_cli(["align", "a", "b.csv", "--json", "-q"]) == 7
    printed = capfd.readouterr()
    found = json.loads(printed.out)
    assert printed.err == ""
    assert (found["aligned"], found["rule"]["id"], found["num_judged"]) == (False, "flagperf-2pct", 10)
    assert found["mean_error"] == pytest.approx(0.5)
    assert found["first_above"] == {
        "step": 21,
        "loss": FALLING[20] * 1.5,
        "reference": FALLING[20],
        "error": pytest.approx(0.5),
    }
    assert [gap["step"] for gap in found["gaps"]] == [1]
    assert found["differences"] == {"precision": ["bf16", "fp32"]}
    assert found["unstated"] == ["the version of the case", "training.seed", "model", "data", "samples per step"]
    assert (found["run"]["run"], found["reference"]["run"], found["run"]["shape"]) == ("a", "", "1x1")


def test_a_curve_in_json_has_every_step(capfd: pytest.CaptureFixture[str]) -> None:
    replayed("clean-2-ranks")
    assert run_cli(["runs", "curve", "clean", "--json"]) == 0
    points = json.loads(capfd.readouterr().out)["points"]
    assert [point["step"] for point in points] == list(range(1, 11))
    assert (points[0]["loss"], points[0]["samples"]) == (2.5, 8)


def test_a_bundle_that_was_changed_is_compared_with_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    bundle = make_bundle("a", FALLING)
    (bundle / "logs" / "added").write_text("")
    assert run_cli(["align", "a", "a", "--rule", "exact"]) == 0
    assert "warning: a is not verified: logs/added is not in MANIFEST" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("align a nothing.csv", ["there is no file nothing.csv", "unknown run 'nothing.csv'"]),
        ("align a runs", ["there is no file runs", "runs has no run.json"]),
        ("align a reference.csv", ["reference.csv", "neither a run nor a loss curve", "runs curve RUN > FILE"]),
        ("align a seed", ["cannot align a with seed: training.seed is 0 in RUN, 3 in REFERENCE"]),
        ("align a short", ["RUN has steps 1 to 30, REFERENCE has 1 to 10", "sha256 bb", "one to one"]),
        ("align short short", ["rule flagperf-2pct judges steps from 21 on, but the curves end at step 10"]),
        ("align a one-rank-dead", ["one-rank-dead has no loss curve: run_failed", "rank 0 ended as failed"]),
        ("align torn-last-line a", ["the record of rank 1 stops after step 10"]),
        ("runs curve empty", ["empty has no loss curve: run_failed, no record of ranks 0, 1"]),
        ("align a a --tolerance 1e-5", ["--tolerance is for --rule exact"]),
        ("align a a --rule exact --tolerance -1", ["--tolerance"]),
        ("align a a --rule exacd", ["--rule"]),
        ("align a", ["REFERENCE"]),
    ],
)
def test_wrong_commands(command: str, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    make_bundle("a", FALLING)
    make_bundle("short", FALLING[:10], data="bb")
    make_bundle("seed", FALLING, training__seed=3)
    Path("reference.csv").write_text("step,loss\n1,2\n")
    for name in ("one-rank-dead", "torn-last-line", "empty"):
        replayed(name)
    assert run_cli(command.split()) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    for word in words:
        assert word in printed.err
    assert "Traceback" not in printed.err
