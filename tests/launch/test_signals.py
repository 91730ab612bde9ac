"""Signals of a run, seen from a process of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from flagperf.fleet.signals import signals_restored

RUN = """
import os, signal, sys
from flagperf.fleet.signals import raise_on_signals
{before}
raise_on_signals()
number = signal.Signals[sys.argv[1]]
try:
    os.kill(os.getpid(), number)
    print("nothing happened")
except KeyboardInterrupt as interrupt:
    print(*interrupt.args)
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), each)
print("still here")
"""


def run(number: str, before: str = "signal.signal(signal.SIGHUP, signal.SIG_DFL)") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(before=before), number], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("number", "words"), [("SIGINT", "Ctrl-C"), ("SIGTERM", "SIGTERM"), ("SIGHUP", "SIGHUP")])
def test_the_first_signal_interrupts_and_no_other_does_anything(number: str, words: str) -> None:
    assert run(number) == [words, "still here"]


PYTHONS_OWN = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell ignores it for what it starts with &

HELD_BACK = """
import os, signal
from flagperf.fleet.signals import raise_on_signals
from flagperf.fleet.signals import held_back
{before}
try:
    with held_back():
        os.kill(os.getpid(), signal.SIGINT)
        print("taken whole")
    print("not reached")
except KeyboardInterrupt as interrupt:
    print("interrupted", *interrupt.args)
"""


@pytest.mark.parametrize(("before", "words"), [("raise_on_signals()", " Ctrl-C"), (PYTHONS_OWN, "")])
def test_a_signal_that_is_held_back_interrupts_afterwards(before: str, words: str) -> None:
    """In a program with Python's own handler too."""
    program = HELD_BACK.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["taken whole", f"interrupted{words}"], done.stderr


def test_under_nohup_a_terminal_may_go_away() -> None:
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    program = RUN.replace("for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)", "for each in ()")
    done = subprocess.run(
        [sys.executable, "-c", program.format(before=ignored), "SIGHUP"], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines() == ["nothing happened", "still here"]


def test_a_program_that_runs_a_case_gets_its_signals_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_restored():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) == before
