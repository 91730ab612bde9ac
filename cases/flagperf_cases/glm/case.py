"""GLM learns to fill the blank in a query about a passage: the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from flagperf.worker import Context
from flagperf_cases.glm.checkpoint import CHECKPOINT, load_checkpoint
from flagperf_cases.glm.data import load_samples, sequences, training_loader
from flagperf_cases.glm.model import Glm, matmul_parameters
from flagperf_cases.glm.pieces import Sample, Samples
from flagperf_cases.glm.scores import exact_match, f1
from flagperf_cases.half import NamedParameters, Updates, make_updates
from flagperf_cases.modes import evaluating
from flagperf_cases.rows import TrainingRows, counts, evaluation_rows

NOT_A_CANDIDATE = -10_000.0
"""Score of a candidate that is only there because another sample of the batch has more."""

CANDIDATES_AT_ONCE = 10
"""Sequences per query of an evaluation batch."""


def run(ctx: Context) -> None:
    config = ctx.config
    train, validation = load_samples(config, ctx.data_dir)
    for samples in (train, validation):
        ctx.describe_data(samples.name, len(samples), samples.sha256)

    torch.manual_seed(config.training.seed)  # alike on every rank
    model = Glm(config.model)
    if config.model.checkpoint:
        assert ctx.data_dir is not None, "check_files has asked for --data-dir"
        load_checkpoint(model, ctx.data_dir / CHECKPOINT)
    model = model.to(getattr(torch, ctx.precision.storage))
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # from here on dropout, which differs over ranks
    describe(ctx, model)

    rows = training_rows(ctx, len(train))
    loader = training_loader(train, rows, config.data.num_workers)
    accelerator = ctx.accelerator()
    model = accelerator.prepare(model)
    # Evaluated without the data parallel wrapper: ranks may have one row more or less, and must not wait in a forward.
    plain_model = accelerator.unwrap_model(model)
    updates = make_updates(
        plain_model.named_parameters(), ctx.precision, partial(make_optimizer, config=config), config.training.clip
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        updates.optimizer, partial(rate_factor, num_steps=config.training.schedule_steps // config.training.accumulate)
    )
    steps_between_evaluations = math.ceil(config.evaluation.every_samples / rows.global_batch)

    evaluate(ctx, plain_model, validation)
    model.train()
    with ctx.training(planned_steps=rows.planned_steps):
        for number, micro_batches in enumerate(all_steps(ctx, rows, loader), 1):
            train_step(ctx, accelerator, model, updates, schedule, micro_batches)
            is_due = number % steps_between_evaluations == 0 or number == rows.planned_steps
            if is_due and evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def train_step(
    ctx: Context, accelerator: Any, model: Any, updates: Updates, schedule: Any, micro_batches: list[dict[str, Any]]
) -> None:
    with ctx.step() as step:
        loss_sum = torch.zeros((), device=ctx.device)
        for index, batch in enumerate(micro_batches):
            is_last = index == len(micro_batches) - 1
            with nullcontext() if is_last else accelerator.no_sync(model):
                loss = (choice_losses(model, batch) * batch["weights"]).sum()
                accelerator.backward(updates.scaled(loss * batch["scale"]))
            loss_sum += loss.detach()
        if updates.apply():
            schedule.step()
        counted = counts(micro_batches)
        step.done(**counted, loss=loss_sum / max(counted["samples"], 1))


def choice_losses(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Per sample: how surprising it is that the first candidate is the right one."""
    candidates = batch["candidates"]
    scores = model(**batch["inputs"]).view(candidates.shape).masked_fill(~candidates, NOT_A_CANDIDATE)
    return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device), reduction="none")


def evaluate(ctx: Context, model: Any, samples: Samples) -> float:
    """Exact match over all ranks; every query is counted once."""
    num_rows = min(len(samples), ctx.config.evaluation.max_rows or len(samples))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluating(model):
        guesses = best_candidates(ctx, model, samples, mine, evaluation.done)
        judged = [judge(samples.samples[row], guess) for row, guess in zip(mine, guesses, strict=True)]
        totals = [sum(column) for column in zip((0.0, 0.0, 0.0), *judged, strict=True)]  # a rank may have no row
        *sums, num_evaluated = ctx.sum_over_ranks(*totals, len(mine))
    accuracy, matched, overlap = (total / num_evaluated for total in sums)
    ctx.report(acc=accuracy, em=matched, f1=overlap, evaluated=num_evaluated)
    return accuracy


def best_candidates(
    ctx: Context, model: Any, samples: Samples, rows: Iterable[int], say_done: Callable[[int], None]
) -> list[int]:
    """Index of the best candidate of each row, by batches of whole sequences."""
    pairs = [(row, index) for row in rows for index in range(len(samples.samples[row].candidates))]
    scores: list[torch.Tensor] = []
    at_once = ctx.config.evaluation.batch_size * CANDIDATES_AT_ONCE
    for first in range(0, len(pairs), at_once):
        batch = pairs[first : first + at_once]
        inputs, _ = sequences(samples, batch)
        scores.append(model(**{name: tensor.to(ctx.device) for name, tensor in inputs.items()}))
        say_done(sum(candidate == 0 for _, candidate in batch))
    scored = zip(pairs, torch.cat(scores).tolist() if scores else (), strict=True)
    by_row = groupby(scored, key=lambda item: item[0][0])
    return [max(group, key=lambda item: item[1])[0][1] for _, group in by_row]


def judge(sample: Sample, guess: int) -> tuple[float, float, float]:
    """By index, as published; by text and by words, as ReCoRD's own script does."""
    answers = [sample.texts[index] for index in sample.right]
    text = sample.texts[guess]
    return float(guess in sample.right), exact_match(text, answers), f1(text, answers)


def training_rows(ctx: Context, num_samples: int) -> TrainingRows:
    """As many steps as train `training.max_samples`, or `training.max_steps` where those are fewer."""
    training = ctx.config.training
    global_batch = training.batch_size * training.accumulate * ctx.world_size
    epochs, rest = divmod(training.max_samples, num_samples)
    steps = epochs * math.ceil(num_samples / global_batch) + math.ceil(rest / global_batch)
    return TrainingRows(
        num_samples, batch_size=training.batch_size, accumulate=training.accumulate, epochs=epochs + 1,
        max_steps=min(steps, training.max_steps or steps), seed=training.seed, rank=ctx.rank,
        world_size=ctx.world_size,
    )  # fmt: skip


def all_steps(ctx: Context, rows: TrainingRows, loader: Any) -> Iterator[Any]:
    for epoch in range(rows.epochs):
        rows.epoch = epoch
        yield from ctx.batches(loader)


def rate_factor(step: int, num_steps: int) -> float:
    """Of the learning rate: a tenth of the steps up from 0, the others down to a tenth of the rate, then flat."""
    warmup = 0.1 * num_steps
    if step <= warmup:
        return step / warmup if warmup else 1.0
    return 1 - 0.9 * min(1.0, (step - warmup) / (num_steps - warmup))


def make_optimizer(named: NamedParameters, config: Any) -> torch.optim.Optimizer:
    # A frozen model still does all the work of a step; only the weights stay as they were.
    rate = 0.0 if config.model.frozen else config.training.learning_rate
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": config.training.weight_decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},  # biases and norms
    ]
    if config.training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate)
    return torch.optim.AdamW(groups, lr=rate)


def describe(ctx: Context, model: Any) -> None:
    values = ctx.config.model
    ctx.describe_model(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matmul_parameters=matmul_parameters(values), layers=values.layers, heads=values.heads,
        head_size=values.width // values.heads, sequence=values.sequence, causal=False,
    )  # fmt: skip
