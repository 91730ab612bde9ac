from __future__ import annotations

from flagperf.api import LaunchCommand, Setting


def test_settings_win_over_what_is_inherited_and_removed_variables_are_gone_unless_they_are_set() -> None:
    command = LaunchCommand(("a",), (Setting("THREADS", "4", "why"), Setting("LOG", "0", "why")), ("DEBUG", "LOG"))
    inherited = {"THREADS": "64", "DEBUG": "1", "LOG": "1", "HOME": "/root"}
    assert command.environment(inherited) == {"THREADS": "4", "LOG": "0", "HOME": "/root"}
    assert inherited["THREADS"] == "64"
