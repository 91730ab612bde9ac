"""DistilBERT learns whether a sentence is friendly: the training loop."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from flagperf.worker import Context
from flagperf_cases.distilbert.data import Sentences, load_sentences, padded, training_loader
from flagperf_cases.distilbert.model import build_model, matmul_parameters
from flagperf_cases.modes import evaluating
from flagperf_cases.rows import TrainingRows, counts, evaluation_rows


def run(ctx: Context) -> None:
    config = ctx.config
    train, validation = load_sentences(config, ctx.data_dir)
    for sentences in (train, validation):
        ctx.describe_data(sentences.name, len(sentences.labels), sentences.sha256)

    # Alike on every rank. The classifier starts random, so the seed is part of the result.
    torch.manual_seed(config.training.seed)
    model = build_model(config.model, ctx.data_dir).to(getattr(torch, ctx.precision.storage))
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # from here on dropout, which differs over ranks
    describe(ctx, model)

    rows = TrainingRows(
        len(train.labels), batch_size=config.training.batch_size, accumulate=config.training.accumulate,
        epochs=config.training.epochs, max_steps=config.training.max_steps, seed=config.training.seed,
        rank=ctx.rank, world_size=ctx.world_size,
    )  # fmt: skip
    loader = training_loader(train, rows, config.model.sequence, config.data.num_workers)
    optimizer = make_optimizer(model, config)
    # Not given to accelerate, which would advance it once per rank in every step.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / rows.full_steps)
    accelerator = ctx.accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    # Evaluated without the data parallel wrapper: ranks may have one row more or less, and must not wait in a forward.
    plain_model = accelerator.unwrap_model(model)

    evaluate(ctx, plain_model, validation)
    model.train()
    with ctx.training(planned_steps=rows.planned_steps):
        for epoch in range(rows.epochs):
            rows.epoch = epoch
            for micro_batches in ctx.batches(loader):
                with ctx.step() as step:
                    loss_sum = torch.zeros((), device=ctx.device)
                    for index, batch in enumerate(micro_batches):
                        is_last = index == len(micro_batches) - 1
                        with nullcontext() if is_last else accelerator.no_sync(model):
                            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                            losses = cross_entropy(logits.float(), batch["labels"], reduction="none")
                            loss = (losses * batch["weights"]).sum()
                            accelerator.backward(loss * batch["scale"])
                        loss_sum += loss.detach()
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                    counted = counts(micro_batches)
                    step.done(**counted, loss=loss_sum / max(counted["samples"], 1))
            if evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def evaluate(ctx: Context, model: Any, sentences: Sentences) -> float:
    """Accuracy over all ranks; every row is counted once."""
    config = ctx.config
    num_rows = min(len(sentences.labels), config.evaluation.max_rows or len(sentences.labels))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluating(model):
        correct = torch.zeros((), dtype=torch.long, device=ctx.device)
        for first in range(0, len(mine), config.evaluation.batch_size):
            batch = padded(sentences, mine[first : first + config.evaluation.batch_size], config.model.sequence)
            inputs = {name: tensor.to(ctx.device) for name, tensor in batch.items()}
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
            correct += (logits.argmax(-1) == inputs["labels"]).sum()
            evaluation.done(len(logits))
        num_correct, num_evaluated = ctx.sum_over_ranks(int(correct), len(mine))
    accuracy = num_correct / num_evaluated
    ctx.report(acc=accuracy, evaluated=num_evaluated, correct=num_correct)
    return accuracy


def make_optimizer(model: Any, config: Any) -> torch.optim.Optimizer:
    # A frozen model still does all the work of a step, so that every rank has gradients to exchange; only the weights
    # stay as they were.
    rate = 0.0 if config.model.frozen else config.training.learning_rate
    decay = config.training.weight_decay
    if config.training.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay)
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)


def describe(ctx: Context, model: Any) -> None:
    values = ctx.config.model
    ctx.describe_model(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matmul_parameters=matmul_parameters(values), layers=values.layers, heads=values.heads,
        head_size=values.width // values.heads, sequence=values.sequence, causal=False,
    )  # fmt: skip
