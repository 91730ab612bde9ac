"""8,000 ranks' events to metrics, and the growth up to there; `runs verify` and `report` on the same bundles."""

from __future__ import annotations

from collections.abc import Iterator

from bench.many_ranks import MEBIBYTE, end_of_run
from bench.measure import Figure

RANKS = (1000, 2000, 4000, 8000)
SECONDS_LIMIT, MEBIBYTES_LIMIT = 60, 2048
COMMANDS = {
    "ranks_8000": "end of run",
    "ranks_8000_verify": "runs verify",
    "ranks_8000_report": "report --no-published",
}


def measure() -> Iterator[Figure]:
    _, *commands = COMMANDS.values()
    found = {num_ranks: end_of_run(num_ranks, *commands) for num_ranks in RANKS}
    for name, command in COMMANDS.items():
        used = found[RANKS[-1]][command]
        details = tuple(f"{num_ranks} ranks: {each[command]}" for num_ranks, each in found.items())
        how = f"{command}: CPU time of its one process, which is its wall time where the machine does nothing else"
        is_within = used.cpu_seconds <= SECONDS_LIMIT
        yield Figure(name, f"{used.cpu_seconds:.1f} s", f"<= {SECONDS_LIMIT}", is_within, how, details)
        peak = used.peak_bytes / MEBIBYTE
        is_within = peak <= MEBIBYTES_LIMIT
        yield Figure(
            f"{name}_mem", f"{peak:.0f} MiB", f"<= {MEBIBYTES_LIMIT}", is_within, f"{command}: its peak memory"
        )
