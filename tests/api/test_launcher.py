from __future__ import annotations

from flagperf.api import LaunchCommand, Setting


def test_settings_win_over_what_is_inherited_and_removed_variables_are_gone() -> None:
    command = LaunchCommand(("a",), (Setting("THREADS", "4", "why"),), remove=("DEBUG",))
    inherited = {"THREADS": "64", "DEBUG": "1", "HOME": "/root"}
    assert command.environment(inherited) == {"THREADS": "4", "HOME": "/root"}
    assert inherited == {"THREADS": "64", "DEBUG": "1", "HOME": "/root"}


def test_a_removed_variable_that_is_also_set_is_set() -> None:
    command = LaunchCommand(("a",), (Setting("DEBUG", "0", "why"),), remove=("DEBUG",))
    assert command.environment({"DEBUG": "1"}) == {"DEBUG": "0"}
