"""`describe` prints NodeFacts; `check` looks at a case's data; `run` carries out a node's share of a job;
`probe` samples memory beside it."""

from __future__ import annotations

import sys

from flagperf.errors import FlagPerfError


def main(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else ""
    try:
        if verb == "describe":
            from flagperf.agent.describe import main as describe

            return describe(sys.stdin.buffer, sys.stdout.buffer)
        if verb == "check":
            from flagperf.agent.check import main as check

            return check(sys.stdin.buffer, sys.stdout.buffer)
        if verb == "run":
            from flagperf.agent.run import main as run

            return run(sys.stdin.buffer, sys.stdout.buffer)
        if verb == "probe":
            from flagperf.agent.probe import main as probe

            return probe(sys.stdin.buffer, sys.stdout.buffer)
    except FlagPerfError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("usage: python -m flagperf.agent describe|check|run|probe  (requests come on stdin)", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
