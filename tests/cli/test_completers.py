"""What the shell is offered, asked as click's own script asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from flagperf.bundle.bundle import create_bundle
from flagperf.cli import cli
from run_builders import make_run

pytestmark = pytest.mark.usefixtures("empty_folder")


def offered(line: str) -> list[tuple[str, str]]:
    """(type, word) for what comes after the line's last space."""
    *words, incomplete = line.split(" ")
    completions = ShellComplete(cli, {}, "flagperf", "_FLAGPERF_COMPLETE").get_completions(words, incomplete)
    return [(item.type, item.value) for item in completions]


def words(line: str) -> list[str]:
    return [word for kind, word in offered(line) if kind == "plain"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ru", "runs"),
        ("run dist", "distilbert"),
        ("cases show dist", "distilbert"),
        ("run distilbert --vendor c", "cpu"),
        ("plan distilbert --profile st", "standard"),
        ("run --profile standard distilbert --precision amp-b", "amp-bf16"),
        ("run --precision t", "tf32"),
        ("run distilbert --cluster l", "local"),
        ("run distilbert --set training.batch", "training.batch_size="),
        ("run distilbert --set training.seed=1 training.batch", "training.batch_size="),
        ("report --format m", "md"),
        ("report l", "latest"),
        ("align l", "latest"),
        ("align --rule e", "exact"),
    ],
)
def test_names_that_exist_are_offered(line: str, word: str) -> None:
    assert word in words(line)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("run distilbert --config fl", "file"),
        ("env --config fl", "file"),
        ("run distilbert --data-dir da", "dir"),
        ("run distilbert --runs-dir el", "dir"),
        ("runs list --runs-dir el", "dir"),
        ("report elsewhere/2026", "dir"),
        ("align latest curves/ref", "file"),
    ],
)
def test_paths_are_left_to_the_shell(line: str, kind: str) -> None:
    assert offered(line) == [(kind, line.rpartition(" ")[2])]


@pytest.mark.parametrize("command", ["report", "runs show", "runs path", "runs verify", "runs curve", "align"])
def test_runs_are_offered_by_prefix_the_newest_first(command: str) -> None:
    for day in ("01", "02"):
        create_bundle(Path("elsewhere"), make_run(f"202601{day}T000000Z-demo-cpu-1x1-abc123"), ())
    found = words(f"{command} --runs-dir elsewhere 2026")
    assert found == ["20260102T000000Z-demo-cpu-1x1-abc123", "20260101T000000Z-demo-cpu-1x1-abc123"]
    assert words(f"{command} --runs-dir elsewhere 20260101") == found[1:]


@pytest.mark.parametrize(
    "line", ["rum distilbert --", "run nothing --profile ", "report --runs-dir run.json x", "run --set "]
)
def test_what_cannot_be_known_offers_nothing_and_says_nothing(
    line: str, empty_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "run.json").write_text("")
    assert [word for word in words(line) if not word.startswith("--")] == []
    assert capfd.readouterr() == ("", "")


def test_the_script_asks_flagperf_itself(empty_folder: Path) -> None:
    environment = {
        **os.environ,
        "_FLAGPERF_COMPLETE": "bash_complete",
        "COMP_WORDS": "flagperf cases show di",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-m", "flagperf"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain,distilbert\n", "")
