"""all_reduce of the case collectives over gloo against a bare loop, in the same two processes."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch
from torch import distributed

from bench.measure import Figure, NotMeasured, interleaved, throughput_ratio
from bench.workload import make_context
from flagperf.stats import median
from flagperf.worker import Context
from flagperf_cases.collectives.case import make_groups, prepare
from flagperf_cases.collectives.data import Message

NUM_RANKS, NUM_PAIRS, CALLS = 2, 40, 40
SIZE = 4 << 20
LIMIT = 0.95
VALUES = {
    "measure": {"seconds": 0.05, "min_samples": CALLS, "warmup_seconds": 0.0, "warmup_cap_seconds": 0.05},
    "collectives": {"seed": 0},
}


def measure() -> Iterator[Figure]:
    """Seconds of a call, by the slower of the two ranks in each turn."""
    with tempfile.TemporaryDirectory() as folder:
        _run_ranks(Path(folder))
        found = [msgspec.json.decode((Path(folder) / f"{rank}.json").read_bytes()) for rank in range(NUM_RANKS)]
    turns = {name: list(map(max, *(seconds[name] for seconds in found))) for name in found[0]}
    how = (
        f"{NUM_PAIRS} alternating pairs of {CALLS} calls of {SIZE >> 20} MiB on {NUM_RANKS} ranks, median time of a "
        "call on the slower one; median, 95 % interval"
    )
    same = throughput_ratio(turns["bare again"], turns["bare as well"])
    ratio = throughput_ratio(turns["bare"], turns["case"])
    yield Figure("all_reduce_aa", str(same), "", None, f"bare over bare: {how}")
    yield Figure("all_reduce", str(ratio), f">= {LIMIT}", ratio.reaches(LIMIT), f"the case over a bare loop: {how}")


def _run_ranks(folder: Path) -> None:
    """The first that fails ends the other, which would wait for it."""
    ranks = {os.fork() or _leave(_run_rank, folder, rank) for rank in range(NUM_RANKS)}
    while ranks:
        rank, status = os.wait()
        ranks.discard(rank)
        if status:
            for other in ranks:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            raise NotMeasured("a rank failed; its traceback is above")


def _run_rank(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=NUM_RANKS)
    context = make_context(folder / f"rank-{rank:05}.jsonl", VALUES, kind="base", rank=rank, world_size=NUM_RANKS)
    with context.measured():
        turns = _turns(context)
    (folder / f"{rank}.json").write_bytes(msgspec.json.encode(turns))


def _turns(context: Context) -> dict[str, list[float]]:
    """An A/B and an A/A pair in every round."""
    group, message = make_groups(context)["node"], Message("all_reduce", "fp32", SIZE, "headline")
    buffer = torch.ones(SIZE // 4)

    def bare() -> float:
        buffer.fill_(1.0)  # 40 sums of two are finite
        return median([_seconds_of_call(buffer) for _ in range(CALLS)])

    def case() -> float:
        row = context.timed_row("all_reduce", {}, lambda: prepare(context, "node", group, message), together=True)
        if row.status != "ok":
            raise RuntimeError(row.problem)
        return median(row.values)

    programs = {"bare": bare, "case": case, "bare again": bare, "bare as well": bare}
    return interleaved(programs, NUM_PAIRS)


def _seconds_of_call(buffer: Any) -> float:
    began = time.perf_counter()
    distributed.all_reduce(buffer)
    return time.perf_counter() - began


def _leave(work: Callable[..., None], *arguments: Any) -> NoReturn:
    """As a worker does: native threads may abort the interpreter's own shutdown."""
    try:
        work(*arguments)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
