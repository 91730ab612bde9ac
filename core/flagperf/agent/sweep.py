"""`agent sweep`: does the watchdog's work on this machine where that was killed too. Takes the share of a run that was
lost, a line of JSON; says on stderr what was left behind."""

from __future__ import annotations

from typing import IO

import msgspec

from flagperf.agent.watchdog import RunShare, clean_up


def main(stdin: IO[bytes], _stdout: IO[bytes]) -> int:
    clean_up(msgspec.json.decode(stdin.readline(), type=RunShare))
    return 0
