"""How a process ended, as a message."""

from __future__ import annotations

import signal

from flagperf.messages import Message, message


def exit_message(code: int) -> Message:
    """`code` as subprocess has it: negative for a signal."""
    if code >= 0:
        return message("exit.code", code=code)
    if -code == signal.SIGKILL:
        return message("exit.sigkill")
    known = {number.value: number.name for number in signal.Signals}
    return message("exit.signal", signal=known.get(-code, str(-code)))
