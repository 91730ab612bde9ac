"""What the guard lets through, and what it makes of the rest. How plugins misbehave for real: tests/faults."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flagperf.api import LaunchCommand
from flagperf.errors import BadInput, PluginFailed
from flagperf.plugins import PluginStatus, guard, trial
from flagperf.plugins.guard import ask
from flagperf.plugins.trial import SECONDS_VARIABLE, try_out

ACME = PluginStatus("acme", "flagperf-acme", "1.2.3")
OURS = PluginStatus("builtin", "flagperf", "0.1.0")


def forking() -> int:
    """As multiprocessing does it."""
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_an_error_for_the_user_stays_what_it_is() -> None:
    def refuse() -> None:
        raise BadInput("there are 2 nodes, not 3")

    with pytest.raises(BadInput, match=r"^there are 2 nodes, not 3$"):
        ask(ACME, "allocate", refuse, list[int], acts=True)


def test_our_own_code_is_called_once_and_here() -> None:
    calls: list[int] = []
    ask(OURS, "peaks", lambda: calls.append(os.getpid()), type(None))
    assert calls == [os.getpid()]


def test_a_fork_of_a_plugin_that_acts_may_leave_while_the_plugin_itself_may_not() -> None:
    leave = os._exit
    assert ask(ACME, "allocate", forking, int, acts=True) == 7
    with pytest.raises(PluginFailed, match=r"flagperf-acme 1\.2\.3 failed: release: SystemExit: os\._exit\(0\)"):
        ask(ACME, "release", lambda: os._exit(0), type(None), acts=True)
    assert os._exit is leave


def test_of_two_calls_that_act_at_once_the_first_to_end_leaves_the_other_its_refusal() -> None:
    leave = os._exit
    both_act, first_has_ended = threading.Barrier(2, timeout=60), threading.Event()

    def first() -> None:
        ask(ACME, "collect", both_act.wait, int, acts=True)
        first_has_ended.set()

    def second() -> bool:
        both_act.wait()
        return first_has_ended.wait(60) and os._exit is not leave

    thread = threading.Thread(target=first)
    thread.start()
    assert ask(ACME, "collect", second, bool, acts=True), "os._exit is the process's own again while a call acts"
    thread.join()
    assert os._exit is leave


def test_a_long_wait_for_a_cluster_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_NOTE_SECONDS", 0.01)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)

    def queue() -> list[int]:
        while not stderr.getvalue().endswith("\n"):
            time.sleep(0.01)
        return []

    ask(ACME, "allocate", queue, list[int], acts=True)
    assert stderr.getvalue() == "flagperf: waiting for flagperf-acme 1.2.3: allocate\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Path("x"), Path | None),
        (None, Path | None),
        (["a"], list[str]),
        (("a",), list[str]),
        (LaunchCommand(("a",)), LaunchCommand),
    ],
)
def test_what_the_contract_says_passes(given: Any, expected: Any) -> None:
    assert ask(OURS, "it", lambda: given, expected) == (["a"] if expected == list[str] else given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x", Path | None),
        (None, LaunchCommand),
        (LaunchCommand([1, 2]), LaunchCommand),  # type: ignore[arg-type]
        ([1], list[str]),
        ({"a": 1.5}, dict[str, int]),
        (object(), list[str]),
        (True, str | None),
        ([b"x"], list[str]),
    ],
)
def test_another_type_is_named(given: Any, expected: Any) -> None:
    with pytest.raises(PluginFailed, match=f"it: TypeError: it gave {type(given).__name__}, not "):
        ask(OURS, "it", lambda: given, expected)


def test_what_comes_back_is_told_from_what_does_not_and_those_after_it_are_tried_too() -> None:
    def end() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    assert try_out([lambda: 1, lambda: os._exit(3), lambda: 1 / 0, end, lambda: 2]) == [
        "",
        "ended the process (exit code 3)",
        "",
        "ended the process (killed by SIGUSR1)",
        "",
    ]


def test_a_fork_that_is_watched_tries_nothing_in_a_fork_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_is_apart", True)
    assert try_out([lambda: os._exit(3)]) == [""]


def test_a_program_with_threads_of_its_own_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread holds would never be released in the fork."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        monkeypatch.setattr(trial, "_has_harmless_threads", False)
        assert try_out([lambda: os._exit(3)]) == [""]
        monkeypatch.setattr(trial, "_has_harmless_threads", True)  # as agents have
        assert try_out([lambda: os._exit(3)]) == ["ended the process (exit code 3)"]
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e9"])
def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, text)
    with pytest.raises(BadInput, match=f"{SECONDS_VARIABLE}='{text}'"):
        try_out([lambda: None])
