"""The same training, with toys that are there."""

from flagperf.worker import Context
from flagperf_toy.toy.case import run as play


def run(ctx: Context) -> None:
    play(ctx)
