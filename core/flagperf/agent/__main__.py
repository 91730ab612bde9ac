"""Every verb is a module with a `main(stdin, stdout)`; its docstring says what it reads and prints."""

from __future__ import annotations

import importlib
import os
import sys

from flagperf.errors import FlagPerfError

VERBS = ("describe", "check", "run", "probe")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in VERBS:
        print(f"usage: python -m flagperf.agent {'|'.join(VERBS)}  (requests come on stdin)", file=sys.stderr)
        return 2
    # Whatever a vendor's library prints goes to stderr: stdout carries our answer alone.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        module = importlib.import_module(f"flagperf.agent.{arguments[0]}")
        return int(module.main(sys.stdin.buffer, answer))
    except FlagPerfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        answer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
