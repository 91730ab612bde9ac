"""runs list, rm, tag, note: what people do with many runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.bundle.bundle import create_bundle, seal, write_run
from flagperf.bundle.run_record import Ending, Status, read_labels
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import run_cli
from flagperf.metrics.entry import Metric
from run_builders import make_run, minimal_job

IDS = {name: f"2026010{number}T000000Z-{name}-cpu-1x1-abc12{number}" for number, name in enumerate(("one", "two"), 1)}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    bundle("one", "succeeded", vendor="cpu")
    bundle("two", "failed", vendor="acme")
    return tmp_path / "runs"


def bundle(case: str, status: Status, **job: Any) -> Path:
    run = make_run(IDS[case])
    metrics = (Metric("p_core", "samples/s", "p_core", "system", value=1234.56, marks=("busy_host",)),)
    run = msgspec.structs.replace(run, job=minimal_job(run_id=run.id, case=case, **job), metrics=metrics)
    path = create_bundle(Path("runs"), run, ())
    write_run(path, msgspec.structs.replace(run, ending=Ending(status)))
    seal(path)
    return path


def listed(capfd: pytest.CaptureFixture[str], *filters: str) -> list[str]:
    assert run_cli(["runs", "list", "--json", *filters]) == 0
    return [line["case"] for line in json.loads(capfd.readouterr().out)]


def refusal(capfd: pytest.CaptureFixture[str], *command: str) -> str:
    assert run_cli(["runs", *command]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    return printed.err


def test_a_line_reads_from_case_to_ending(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["runs", "list"]) == 0
    heads, one, two = (line.split() for line in capfd.readouterr().out.splitlines())
    assert heads == ["RUN", "CASE", "VENDOR", "DEVICE", "SHAPE", "PROFILE", "PRECISION", "RESULT", "STATUS"]
    assert one[1:] == ["one", "cpu", "CPU", "1x1", "tiny", "fp32", "p_core", "1234.6", "samples/s*", "succeeded"]
    assert two[1:] == ["two", "acme", "CPU", "1x1", "tiny", "fp32", "failed"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--case", "one"], ["one"]),
        (["--vendor", "acme"], ["two"]),
        (["--status", "succeeded", "--status", "failed"], ["one", "two"]),
        (["--status", "running"], []),
        (["--case", "one", "--status", "failed"], []),
        (["--case", "glm"], []),  # installed, and never run here
    ],
)
def test_filters_leave_what_has_one_word_of_each(
    capfd: pytest.CaptureFixture[str], filters: list[str], found: list[str]
) -> None:
    assert listed(capfd, *filters) == found


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (["--case", "tow"], "unknown case 'tow'; did you mean two"),
        (["--vendor", "acne"], "unknown vendor 'acne'; did you mean acme"),
        (["--status", "success"], "unknown status 'success'; did you mean succeeded"),
        (["--tag", "x"], "unknown tag 'x'; there are none"),
    ],
)
def test_a_word_that_nothing_is_called_comes_with_near_ones(
    capfd: pytest.CaptureFixture[str], filters: list[str], words: str
) -> None:
    assert words in refusal(capfd, "list", *filters)


def test_a_filter_that_leaves_nothing_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["runs", "list", "--status", "running"]) == 0
    assert capfd.readouterr().err == "none of the 2 runs in runs\n"


# --- labels ---------------------------------------------------------------------------------------------------------


def test_tags_are_given_found_shown_and_taken_away_and_the_run_still_verifies(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = verify_bundle(runs / IDS["one"]).problems
    assert run_cli(["runs", "tag", IDS["one"], "good", "week-2", "good"]) == 0
    assert run_cli(["runs", "note", IDS["one"], " the fan was loud\x1b[2J "]) == 0
    capfd.readouterr()
    assert verify_bundle(runs / IDS["one"]).problems == before
    assert listed(capfd, "--tag", "good", "--tag", "week-2") == ["one"]
    assert run_cli(["runs", "show", IDS["one"]]) == 0
    shown = capfd.readouterr().out
    assert "good, week-2" in shown
    assert "the fan was loud" in shown
    assert "\x1b[2J" not in shown
    assert run_cli(["runs", "list"]) == 0
    assert "good,week-2  the fan was loud\\x1b[2J" in capfd.readouterr().out
    assert run_cli(["runs", "tag", IDS["one"], "good", "week-2", "--remove"]) == 0
    assert run_cli(["runs", "note", IDS["one"], ""]) == 0
    assert not (runs / IDS["one"] / "labels.json").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["tag", IDS["one"], "no good"], "'no good' is not a tag"),
        (["tag", IDS["one"], "good", "--remove"], "unknown tag 'good'; there are none"),
        (["note", IDS["one"], "x" * 10_001], "the note has 10,001 characters"),
        (["note", IDS["one"], "\udce9"], "the note is not UTF-8"),
    ],
)
def test_labels_that_cannot_be_kept_are_refused(
    runs: Path, capfd: pytest.CaptureFixture[str], command: list[str], words: str
) -> None:
    assert words.lower() in refusal(capfd, *command).lower()
    assert not read_labels(runs / IDS["one"]).tags


# --- rm -------------------------------------------------------------------------------------------------------------


def test_runs_are_removed_all_or_none(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (runs / IDS["two"] / "thesis.tex").write_text("")
    assert "'thesis.tex', which no run writes" in refusal(capfd, "rm", IDS["one"], IDS["two"], "--yes")
    assert (runs / IDS["one"] / "run.json").exists()
    (runs / IDS["two"] / "thesis.tex").unlink()
    assert run_cli(["runs", "rm", IDS["one"], IDS["two"], IDS["one"], "--yes"]) == 0
    assert capfd.readouterr().out.splitlines() == [f"removed {runs / IDS[name]}" for name in ("one", "two")]
    assert list(runs.iterdir()) == []


def test_without_a_terminal_and_without_yes_nothing_is_removed(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: PTH123, SIM115
    assert f"removing {IDS['one']} needs your consent, and there is no terminal" in refusal(capfd, "rm", IDS["one"])
    assert (runs / IDS["one"]).is_dir()


def test_a_damaged_bundle_can_be_removed(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (runs / IDS["one"] / "run.json").unlink()
    assert run_cli(["runs", "rm", IDS["one"], "--yes", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["id"] == IDS["one"]
    assert not (runs / IDS["one"]).exists()
