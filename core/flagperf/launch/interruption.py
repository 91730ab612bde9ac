"""Ctrl-C, SIGTERM and SIGHUP end a run alike: once, in order, its bundle kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """From now on the first of them raises KeyboardInterrupt, and none after it does anything."""
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _raise_once)


def ignore_signals() -> None:
    """What follows is the orderly end of a run, and nothing breaks that off. No SIG_IGN: children would inherit it."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)


@contextlib.contextmanager
def signals_restored() -> Iterator[None]:
    """For a run inside somebody's program, which has its own way with signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that was not installed from Python cannot be
                signal.signal(number, handler)


def _raise_once(number: int, _frame: object) -> None:
    ignore_signals()
    raise KeyboardInterrupt("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
