"""GLM learns to fill the blank in a query about a passage: the training loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from flagperf.worker import Context
from flagperf_cases.glm.checkpoint import CHECKPOINT, load_checkpoint
from flagperf_cases.glm.data import load_data, training_loader
from flagperf_cases.glm.evaluation import evaluate
from flagperf_cases.glm.model import Glm, matmul_parameters
from flagperf_cases.loss_scaling import NamedParameters, Updater, make_updater
from flagperf_cases.model_facts import describe_transformer
from flagperf_cases.sampler import TrainingSampler, step_counts

NOT_A_CANDIDATE = -10_000.0
"""Score of the padding candidates of a sample that has fewer than another one in its batch."""


def run(ctx: Context) -> None:
    config = ctx.config
    train, validation = load_data(config, ctx.data_dir)
    for samples in (train, validation):
        ctx.describe_data(samples.name, len(samples), samples.sha256)

    torch.manual_seed(config.training.seed)  # the same on every rank
    model = Glm(config.model)
    if config.model.checkpoint:
        assert ctx.data_dir is not None, "check_files requires --data-dir"
        load_checkpoint(model, ctx.data_dir / CHECKPOINT)
    model = model.to(getattr(torch, ctx.precision.storage))
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # dropout from here on, different on every rank
    describe_model(ctx, model)

    sampler = make_sampler(ctx, len(train))
    loader = training_loader(train, sampler, config.data.num_workers)
    accelerator = ctx.accelerator()
    model = accelerator.prepare(model)
    # Evaluated without the data parallel wrapper, whose forward pass could wait for a rank that has one row less.
    plain_model = accelerator.unwrap_model(model)
    updater = make_updater(
        plain_model.named_parameters(), ctx.precision, partial(make_optimizer, config=config), config.training.clip
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        updater.optimizer, partial(rate_factor, num_steps=config.training.schedule_steps // config.training.accumulate)
    )
    steps_between_evaluations = math.ceil(config.evaluation.every_samples / sampler.global_batch)

    evaluate(ctx, plain_model, validation)
    model.train()
    with ctx.training(planned_steps=sampler.planned_steps):
        for number, micro_batches in enumerate(all_steps(ctx, sampler, loader), 1):
            train_step(ctx, accelerator, model, updater, schedule, micro_batches)
            is_due = number % steps_between_evaluations == 0 or number == sampler.planned_steps
            if is_due and evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def train_step(
    ctx: Context, accelerator: Any, model: Any, updater: Updater, schedule: Any, micro_batches: list[dict[str, Any]]
) -> None:
    with ctx.step() as step:
        loss_sum = torch.zeros((), device=ctx.device)
        for index, batch in enumerate(micro_batches):
            is_last = index == len(micro_batches) - 1
            with nullcontext() if is_last else accelerator.no_sync(model):
                loss = (choice_losses(model, batch) * batch["weights"]).sum()
                accelerator.backward(updater.scale(loss * batch["scale"]))
            loss_sum += loss.detach()
        if updater.step():
            schedule.step()
        counts = step_counts(micro_batches)
        step.done(**counts, loss=loss_sum / max(counts["samples"], 1))


def choice_losses(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Per sample: the cross entropy of choosing the first candidate, which is the right one."""
    candidates = batch["candidates"]
    scores = model(**batch["inputs"]).view(candidates.shape).masked_fill(~candidates, NOT_A_CANDIDATE)
    return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device), reduction="none")


def make_sampler(ctx: Context, num_samples: int) -> TrainingSampler:
    """As many steps as it takes to train `training.max_samples`, but no more than `training.max_steps`."""
    training = ctx.config.training
    global_batch = training.batch_size * training.accumulate * ctx.world_size
    epochs, rest = divmod(training.max_samples, num_samples)
    steps = epochs * math.ceil(num_samples / global_batch) + math.ceil(rest / global_batch)
    max_steps = min(steps, training.max_steps or steps)
    return TrainingSampler.for_run(ctx, num_samples, epochs=epochs + 1, max_steps=max_steps)


def all_steps(ctx: Context, sampler: TrainingSampler, loader: Any) -> Iterator[Any]:
    for epoch in range(sampler.epochs):
        sampler.epoch = epoch
        yield from ctx.batches(loader)


def rate_factor(step: int, num_steps: int) -> float:
    """Of the learning rate: linear warm-up over a tenth of the steps, linear decay to 0.1 over the rest, then flat."""
    warmup = 0.1 * num_steps
    if step <= warmup:
        return step / warmup if warmup else 1.0
    return 1 - 0.9 * min(1.0, (step - warmup) / (num_steps - warmup))


def make_optimizer(named: NamedParameters, config: Any) -> torch.optim.Optimizer:
    # A frozen model still does all the work of a step; only the weights do not change.
    rate = 0.0 if config.model.frozen else config.training.learning_rate
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": config.training.weight_decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},  # biases and norms
    ]
    if config.training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate)
    return torch.optim.AdamW(groups, lr=rate)


def describe_model(ctx: Context, model: Any) -> None:
    describe_transformer(
        ctx,
        ctx.config.model,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matmul_parameters=matmul_parameters(ctx.config.model),
        causal=False,
    )
