"""The case `operators` without operators of its own, and with as few samples as there can be."""

from flagperf.worker import Context
from flagperf_cases.operators.replay import replay


def run(ctx: Context) -> None:
    recording = ctx.recording()
    assert recording is not None
    replay(ctx, recording)
