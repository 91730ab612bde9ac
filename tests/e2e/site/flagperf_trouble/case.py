"""Sleeps through its steps and, in the middle, does what trouble.mode says on the rank that trouble.rank says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flagperf.errors import Unsupported
from flagperf.worker import Context


def run(ctx: Context) -> None:
    config = ctx.config
    with ctx.training(planned_steps=config.training.max_steps):
        for number in range(config.training.max_steps):
            with ctx.step() as step:
                time.sleep(config.training.step_seconds)
                if number == config.training.max_steps // 2 and ctx.rank == config.trouble.rank:
                    _trouble(config.trouble.mode)
                step.done(samples=4, tokens=40, padded_tokens=10, loss=1.0 / (number + 1))
            ctx.sum_over_ranks(1.0)
    ctx.report(acc=0.1 if config.trouble.mode == "miss_target" else 0.9)


def _trouble(mode: str) -> None:
    if mode == "raise":
        raise ValueError("this case was asked to fail")
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "out_of_memory":
        raise RuntimeError("DefaultCPUAllocator: out of memory: you tried to allocate 1 TB")
    if mode == "unsupported":
        raise Unsupported("this torch is too old for the case")
    if mode == "leave":
        sys.exit(0)
    if mode == "vanish":
        os._exit(0)
    if mode == "orphan":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if mode in ("hang", "orphan") or (mode == "hang_after_another" and _num_runs() > 1):
        time.sleep(600)


def _num_runs() -> int:
    """So many bundles lie beside each other; in this one is the log of the rank."""
    bundle = Path("/proc/self/fd/1").readlink().parents[1]
    return len(list(bundle.parent.glob("*/run.json")))
