"""Throughput of a training loop with flagperf's context over the same loop without it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.measure import Figure, interleaved, seconds_of, throughput_ratio
from bench.workload import BATCH_SIZE, Workload, make_context
from flagperf.worker import Context

NUM_PAIRS, STEPS_PER_TURN = 40, 5
LIMIT = 0.99


def measure() -> Iterator[Figure]:
    """The context stays open throughout, so that it writes at its own rate, once a second."""
    work = Workload()
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder) / "rank-00000.jsonl")
        with context.training():
            turns = _turns(work, context)
    how = (
        f"median and 95 % interval (order statistics) of {NUM_PAIRS} alternating pairs of {STEPS_PER_TURN} steps, "
        "one thread"
    )
    same = throughput_ratio(turns["bare again"], turns["bare as well"])
    ratio = throughput_ratio(turns["bare"], turns["with flagperf"])
    yield Figure("context_ratio_aa", str(same), "", None, f"bare over bare: {how}")
    yield Figure("context_ratio", str(ratio), f">= {LIMIT}", ratio.reaches(LIMIT), f"with flagperf over bare: {how}")


def _turns(work: Workload, context: Context) -> dict[str, list[float]]:
    """An A/B and an A/A pair in every round."""

    def bare() -> None:
        for batch in work.batches(STEPS_PER_TURN):
            work.step(batch)

    def with_flagperf() -> None:
        for batch in context.batches(work.batches(STEPS_PER_TURN)):
            with context.step() as step:
                loss = work.step(batch)
                step.done(samples=BATCH_SIZE, tokens=BATCH_SIZE, padded_tokens=0, loss=loss)

    programs = {"bare": bare, "with flagperf": with_flagperf, "bare again": bare, "bare as well": bare}
    return interleaved({name: partial(seconds_of, turn) for name, turn in programs.items()}, NUM_PAIRS)
