"""What commands print for people: its width, its colors, one card for one run."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from recorded_bundles import FOLDER, recorded_bundle

from flagperf.cli import run_cli

BUNDLES = FOLDER
ONE = recorded_bundle("distilbert")
FAILED = recorded_bundle("worker_killed")
COMMANDS = {
    "one run": ["report", str(ONE)],
    "one inference": ["runs", "show", str(recorded_bundle("aquila_33b"))],
    "several runs": ["report", *map(str, sorted(BUNDLES.glob("*distilbert*")))],
    "several cases": ["report", *map(str, sorted(BUNDLES.glob("2026*")))],
    "align": ["align", str(ONE), str(ONE), "--rule", "exact"],
    **{f"cases show {name}": ["cases", "show", name] for name in ("distilbert", "glm", "llama2_70b", "aquila_33b")},
}


def printed(command: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert run_cli([*command, "-q"]) == 0
    return capfd.readouterr().out


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_lines_fit_the_width_and_no_word_is_cut(
    command: list[str], width: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10000")
    words = bare_words(printed(command, capfd))
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(command, capfd).splitlines()
    too_wide = [line for line in lines if len(line) > width and len(line.split()) > 2]
    assert too_wide == []
    cut = [
        word for word in bare_words("\n".join(lines)) - words if not any(each.startswith(f"{word}-") for each in words)
    ]
    assert cut == []


def bare_words(text: str) -> set[str]:
    """Without the punctuation that a short form leaves out: `C500 1x8` stands for `C500, 1 node, 8 devices (1x8)`."""
    return {word.strip("():,") for word in text.split()}


def test_one_run_is_the_card_that_runs_show_prints(capfd: pytest.CaptureFixture[str]) -> None:
    assert printed(["report", str(ONE)], capfd) == printed(["runs", "show", str(ONE)], capfd)


def test_a_pipe_has_200_columns_unless_columns_is_set(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_pipe = printed(COMMANDS["several runs"], capfd)
    assert 160 < max(map(len, in_a_pipe.splitlines())) <= 200
    monkeypatch.setenv("COLUMNS", "200")
    assert printed(COMMANDS["several runs"], capfd) == in_a_pipe


@pytest.mark.parametrize("command", [["report"], ["runs", "show"], ["report", "--format", "md"]])
def test_published_results_stand_beside_a_tiny_run_only_when_asked_for(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    said = "Published results are left out: figures of profile tiny are not comparable with them"
    shown = printed([*command, str(ONE)], capfd)
    assert "Published results of this case" not in shown and said in shown
    asked = printed([*command, str(ONE), "--published"], capfd)
    assert "Published results of this case" in asked and said not in asked
    refused = printed([*command, str(ONE), "--no-published"], capfd)
    assert "Published results of this case" not in refused and said not in refused


@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
)
def test_in_a_pipe_color_has_to_be_forced(
    variables: dict[str, str],
    is_colored: bool,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = printed(["report", str(ONE)], capfd)
    assert ("\x1b[32msucceeded\x1b[0m" in text) == is_colored
    assert ("\x1b" in text) == is_colored
    assert ("\x1b[31mfailed\x1b[0m" in printed(["report", str(FAILED)], capfd)) == is_colored


@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_on_a_terminal_color_can_be_refused(variables: dict[str, str], is_colored: bool) -> None:
    text = on_terminal(["report", str(ONE), "-q"], variables)
    assert ("\x1b[32msucceeded\x1b[0m" in text) == is_colored
    assert ("\x1b" in text) == is_colored
    assert max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in text.splitlines()) <= 80


def on_terminal(arguments: list[str], variables: dict[str, str]) -> str:
    """Of 80 columns."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **variables}
    subprocess.run([sys.executable, "-m", "flagperf", *arguments], stdout=slave, env=environment, check=True)
    os.close(slave)
    text = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            break
        text += chunk
    os.close(master)
    return text.decode().replace("\r\n", "\n")
