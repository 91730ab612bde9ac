"""A training without a model: every step takes about as long as the one before."""

import time

from flagperf.worker import Context


def run(ctx: Context) -> None:
    config = ctx.config.training
    with ctx.training(planned_steps=config.max_steps):
        for step_number in ctx.batches(range(config.max_steps)):
            with ctx.step() as step:
                time.sleep(0.01)
                step.done(samples=config.batch_size, loss=1 / (step_number + 1))
        with ctx.evaluation():
            time.sleep(0.01)
    ctx.report(acc=0.75)
