"""Sleeps through its steps; after the first one it does what fault.mode says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flagperf.worker import Context


def run(ctx: Context) -> None:
    print(f"optimize={sys.flags.optimize}", flush=True)
    with ctx.training(planned_steps=ctx.config.training.max_steps):
        for number in range(ctx.config.training.max_steps):
            with ctx.step() as step:
                time.sleep(ctx.config.fault.seconds)
                step.done(samples=1, loss=1.0)
            if number == 0:
                _misbehave(ctx.config.fault.mode)


RECORDS = {"events": "events/rank-00000.jsonl", "samples": "samples/node-000.jsonl", "parent": "events/parent.jsonl"}


def _misbehave(mode: str) -> None:
    bundle = Path("/proc/self/fd/1").readlink().parents[1]
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if mode in ("hang", "stubborn"):
        time.sleep(600)
    held = []
    while mode == "fill":
        held.append(bytearray(os.urandom(1 << 20)) * 16)
    verb, _, word = mode.partition("_")
    if verb == "damage":
        with (bundle / RECORDS[word]).open("ab") as file:
            file.write(b"\xff\x00 no event\n" if word != "samples" else b'{"type":"sampled","t_ns":"x"}\n')
    if verb == "replace":
        (bundle / RECORDS[word]).unlink()
        (bundle / RECORDS[word]).mkdir()
