"""What a command starts: `serve` on each node, `probe` beside the workers of a run, `sweep` on its own machine after an
agent there was lost. `sweep` takes that share of a run, a line of JSON, does the watchdog's work and says on stderr
what was left behind.

PLUGINS are those that the command starts without (FLAGPERF_WITHOUT), also on other machines.
The first line in each direction is a hello with the flagperf version (`flagperf.spec.protocol`): a command of another
version is refused before its request is decoded.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys

import msgspec

from flagperf import version
from flagperf.agent.leftovers import RunShare, clean_up
from flagperf.errors import FlagPerfError
from flagperf.plugins.loading import WITHOUT
from flagperf.spec.protocol import check_hello, hello_line

MODES = ("serve", "probe", "sweep")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[0] not in MODES:
        print(f"usage: python -m flagperf.agent {'|'.join(MODES)} [PLUGINS]  (requests come on stdin)", file=sys.stderr)
        return 2
    if len(arguments) == 2:
        os.environ[WITHOUT] = arguments[1]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some callers do, no child would have an exit code
    # Whatever a vendor's library prints goes to stderr: stdout carries our answer alone.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        stdin = os.fdopen(0, "rb", buffering=0, closefd=False)  # what follows the hello stays in the pipe
        answer.write(hello_line(version()))
        answer.flush()
        own = f"this agent on {socket.gethostname()}"
        check_hello(stdin.readline(), other="the command that started it", own=own, own_version=version())
        if arguments[0] == "sweep":
            clean_up(msgspec.json.decode(stdin.readline(), type=RunShare))
            return 0
        module = importlib.import_module(f"flagperf.agent.{arguments[0]}")
        return int(module.main(stdin, answer))
    except FlagPerfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        answer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
