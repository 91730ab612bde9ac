"""Ctrl-C, SIGTERM and SIGHUP end a run in the same way: once, in order, and the bundle is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CTRL_C = "Ctrl-C"
"""The name of SIGINT in messages: a person has pressed it."""


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt at the first of the signals, and ignore the ones after it."""
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _raise_once)


def ignore_signals() -> None:
    """Ignore the signals from now on, for the orderly end of a run. Not with SIG_IGN: children would inherit it."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Raise what a signal would raise in the block at its end: nothing that has arrived is lost halfway."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    raising = {number: each for number, each in handlers.items() if each in (_raise_once, signal.default_int_handler)}
    arrived: list[int] = []
    for number in raising:
        signal.signal(number, lambda number, _frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
    for each in arrived:
        os.kill(os.getpid(), each)


@contextlib.contextmanager
def signals_restored() -> Iterator[None]:
    """Restore the signal handlers of the program around a run. In the block SIGCHLD is not ignored: no child would
    have an exit code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGCHLD)}
    try:
        if before[signal.SIGCHLD] == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # a handler that was not installed from Python cannot be restored
                signal.signal(number, handler)


def _raise_once(number: int, _frame: object) -> None:
    ignore_signals()
    raise KeyboardInterrupt(CTRL_C if number == signal.SIGINT else signal.Signals(number).name)
