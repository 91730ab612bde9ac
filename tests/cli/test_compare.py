"""`flagperf compare` on recorded bundles, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from recorded_bundles import FOLDER, IDS, recorded_bundle

from flagperf.bundle.bundle import read_bundle
from flagperf.cli import run_cli

BUNDLES = FOLDER
ONE, OTHER, SIMULATED, GLM, FAILED = (
    IDS[name][:16] for name in ("distilbert", "distilbert_1x2", "simulated", "glm", "worker_killed")
)
PUBLISHED = "published:distilbert-nvidia-a100-sxm4-40gb-1x8-fp32"


def compared(*words: str) -> int:
    return run_cli(["compare", *words, "--runs-dir", str(BUNDLES)])


def test_bundles_are_compared(capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, OTHER) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "a difference, never a verdict" in printed.out
    assert "training.max_steps" in printed.out
    (line,) = [line for line in printed.out.splitlines() if line.startswith("p_core")]
    one, other = (read_bundle(recorded_bundle(name)).run.metric("p_core") for name in ("distilbert", "distilbert_1x2"))
    assert one and one.value and other and other.value
    assert line.endswith(f" {other.value / one.value:.4g}")


@pytest.mark.parametrize("form", ["terminal", "md", "html", "csv", "json"])
def test_every_format(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, OTHER, PUBLISHED, "--format", form) == 0
    printed = capfd.readouterr().out
    if form == "json":
        assert [side["letter"] for side in json.loads(printed)["sides"]] == ["A", "B", "C"]
    elif form == "csv":
        assert {line["side"] for line in csv.DictReader(io.StringIO(printed))} == {OTHER, PUBLISHED}
    else:
        assert "training/nvidia/distilbert-pytorch/README.md" in printed


def test_a_page_to_look_at(capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, OTHER, PUBLISHED, "--format", "html", "--lang", "zh") == 0
    page = capfd.readouterr().out
    assert (
        page.index('class="caution">不可比较，因此不作判断：') < page.index("p_core, B / A") < page.index("与基准之比")
    )
    assert page.count('class="range open"') == page.count("<i style=") > 6, "single runs have no verdict"
    assert "<script" not in page and "script-src 'none'" in page


def test_latest_is_named_by_its_id_and_said_to_be_older_than_one_that_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [IDS["distilbert"], IDS["distilbert_1x2"]]
    for name in names:
        shutil.copytree(BUNDLES / name, tmp_path / name)
    unfinished = json.loads((BUNDLES / names[1] / "run.json").read_text()) | {
        "id": "20991117T000000Z-x",
        "ending": None,
    }
    (tmp_path / unfinished["id"]).mkdir()
    (tmp_path / unfinished["id"] / "run.json").write_text(json.dumps(unfinished))
    command = ["compare", names[0], "latest", "--baseline", "latest", "--runs-dir", str(tmp_path), "--json"]
    assert run_cli(command) == 0
    printed = capfd.readouterr()
    assert [side["word"] for side in json.loads(printed.out)["sides"]] == [names[1], names[0]]
    told = f"latest: {names[1]}, the latest that has finished; the newer {unfinished['id']} is"
    assert told in printed.err
    for passing in (["runs", "pack", "latest", "-o", str(tmp_path / "a.tar.gz")], ["export", "jsonl", "latest"]):
        assert run_cli([*passing, "--runs-dir", str(tmp_path)]) == 0
        assert told in capfd.readouterr().err


def test_simulated_runs_are_compared_only_if_asked_and_get_no_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, SIMULATED) == 2
    assert "--allow-simulated" in capfd.readouterr().err
    assert compared(ONE, SIMULATED, "--allow-simulated") == 0
    assert "B is simulated" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("limit", "code"),
    [("loss > 100%", 9), ("loss > 5000%", 0), ("samples_kept < -50%", 9), ("samples_kept < -90%", 0)],
)
def test_a_broken_limit_is_exit_code_9(limit: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, OTHER, "--fail-if", limit) == code
    printed = capfd.readouterr()
    assert f"{limit}, B: {'broken' if code else 'kept'} (by the plain difference)" in printed.out
    assert ("broken by B" in printed.err) == bool(code)


def test_a_limit_that_cannot_be_judged_is_said_after_the_comparison(capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(ONE, OTHER, "--fail-if", "mfu < -5%") == 2
    printed = capfd.readouterr()
    assert "mfu < -5%, B: cannot be judged" in printed.out
    assert "flagperf: --fail-if 'mfu < -5%' cannot be judged for B: not measured on both sides" in printed.err


def test_a_changed_bundle_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("distilbert", "distilbert_1x2"):
        shutil.copytree(recorded_bundle(name), tmp_path / IDS[name])
    changed = tmp_path / IDS["distilbert"] / "run.json"
    content = json.loads(changed.read_text())
    speed = next(metric for metric in content["metrics"] if metric["name"] == "p_core")
    speed["value"] += 1
    changed.write_text(json.dumps(content))
    assert run_cli(["compare", ONE, OTHER, "--runs-dir", str(tmp_path)]) == 0
    assert "is not verified" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "argument SIDE... is missing"),
        ([ONE], "needs two sides or more"),
        ([ONE, GLM], f"cannot compare runs of different cases: distilbert ({ONE}), glm ({GLM})"),
        ([ONE, FAILED], "has no run with results to compare"),
        ([ONE, ONE], "is on two sides"),
        ([ONE, OTHER, "--fail-if", "p_core is low"], "--fail-if takes a metric"),
        ([ONE, OTHER, "--fail-if", "p_cor < -5%"], "did you mean p_core"),
        ([ONE, OTHER, "--lang", "zh"], "--lang zh is for pages"),
        ([ONE, OTHER, "--json", "--format", "md"], "contradict each other"),
        ([ONE, OTHER, "--margin", "60"], "--margin"),
    ],
)
def test_wrong_input(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert compared(*words) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.out == "" and printed.err.startswith("flagperf: ") and printed.err.count("\n") == 1
