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
for each in [{further}]:
    os.kill(os.getpid(), each)
print("still here")
"""
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
SIGHUP_ENDS, SIGHUP_IGNORED = (f"signal.signal(signal.SIGHUP, signal.SIG_{word})" for word in ("DFL", "IGN"))
PYTHONS_OWN = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell ignores it for what it starts with &


def printed(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("number", "words"), [("SIGINT", "Ctrl-C"), ("SIGTERM", "SIGTERM"), ("SIGHUP", "SIGHUP")])
def test_the_first_signal_interrupts_and_no_other_does_anything(number: str, words: str) -> None:
    program = RUN.format(before=SIGHUP_ENDS, further="signal.SIGINT, signal.SIGTERM, signal.SIGHUP")
    assert printed(program, number) == [words, "still here"]


def test_under_nohup_a_terminal_may_go_away() -> None:
    program = RUN.format(before=SIGHUP_IGNORED, further="")
    assert printed(program, "SIGHUP") == ["nothing happened", "still here"]


@pytest.mark.parametrize(("before", "words"), [("raise_on_signals()", " Ctrl-C"), (PYTHONS_OWN, "")])
def test_a_signal_that_is_held_back_interrupts_afterwards(before: str, words: str) -> None:
    assert printed(HELD_BACK.format(before=before)) == ["taken whole", f"interrupted{words}"]


def test_a_program_that_runs_a_case_gets_its_signals_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_restored():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) == before
