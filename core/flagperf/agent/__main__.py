"""Every verb is a module with a `main(stdin, stdout)`; its docstring says what it reads and prints.

The first line in each direction is a hello with the flagperf version (`flagperf.spec.hello`): a command of another
version is refused before its request is decoded.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from typing import IO

from flagperf.errors import FlagPerfError
from flagperf.plugins import core_version
from flagperf.plugins.trial import allow_own_threads
from flagperf.spec import check_hello, hello_line

VERBS = ("describe", "check", "run", "probe")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in VERBS:
        print(f"usage: python -m flagperf.agent {'|'.join(VERBS)}  (requests come on stdin)", file=sys.stderr)
        return 2
    allow_own_threads()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some callers do, no child would have an exit code
    # Whatever a vendor's library prints goes to stderr: stdout carries our answer alone.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _exchange_hellos(sys.stdin.buffer, answer)
        module = importlib.import_module(f"flagperf.agent.{arguments[0]}")
        return int(module.main(sys.stdin.buffer, answer))
    except FlagPerfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        answer.close()


def _exchange_hellos(stdin: IO[bytes], answer: IO[bytes]) -> None:
    answer.write(hello_line(core_version()))
    answer.flush()
    own = f"this agent on {socket.gethostname()}"
    check_hello(stdin.readline(), other="the command that started it", own=own, own_version=core_version())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
