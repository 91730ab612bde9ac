"""A worker that tests start through a vendor's launcher: it writes its pid, then does what it is told.

FLAGPERF_RANK_FOLDER   where `rank-<n>.pid` goes
FLAGPERF_RANK_DOES     `leave` at once, `wait` for ever, or `die`: rank 1 kills itself while the others wait
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def main() -> None:
    rank = int(os.environ["RANK"])
    note = Path(os.environ["FLAGPERF_RANK_FOLDER"]) / f"rank-{rank}.pid"
    beside = note.with_suffix(".new")
    beside.write_text(str(os.getpid()))
    beside.replace(note)
    task = os.environ["FLAGPERF_RANK_DOES"]
    if task == "die" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while task != "leave":
        time.sleep(0.2)


if __name__ == "__main__":
    main()
