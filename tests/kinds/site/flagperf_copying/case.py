import time

import torch

from flagperf.worker import Context


def run(ctx: Context) -> None:
    config = ctx.config.copying
    source = torch.ones(config.bytes, dtype=torch.uint8)
    seconds = []
    with ctx.measured(planned_steps=config.repeats):
        for _ in range(config.repeats):
            began = time.perf_counter()
            with ctx.step() as step:
                source.clone()
                step.done(samples=1, bytes=config.bytes)
            seconds.append(time.perf_counter() - began)
    ctx.row("clone", {"bytes": config.bytes, "type": "uint8"}, seconds, "s", bytes=config.bytes)
    ctx.row("clone", {"bytes": 1 << 60, "type": "uint8"}, [], "s", problem="more than the machine has")
