from __future__ import annotations

import io

import pytest

from flagperf.cli.options import wants_color


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("no_color", "force_color", "on_terminal", "in_pipe"),
    [("", "", True, False), ("1", "", False, False), ("", "1", True, True), ("1", "1", False, False)],
)
def test_variables_decide_about_color_before_the_terminal(
    no_color: str, force_color: str, on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", force_color)
    assert wants_color(Terminal()) is on_terminal
    assert wants_color(io.StringIO()) is in_pipe
