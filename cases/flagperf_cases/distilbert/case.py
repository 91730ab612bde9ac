"""DistilBERT learns whether a sentence is positive or negative: the training loop."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from flagperf.worker import Context
from flagperf_cases.distilbert.data import load_data, training_loader
from flagperf_cases.distilbert.evaluation import evaluate
from flagperf_cases.distilbert.model import build_model, matmul_parameters
from flagperf_cases.model_facts import describe_transformer
from flagperf_cases.sampler import TrainingSampler, step_counts


def run(ctx: Context) -> None:
    config = ctx.config
    train, validation = load_data(config, ctx.data_dir)
    for sentences in (train, validation):
        ctx.describe_data(sentences.name, len(sentences.labels), sentences.sha256)

    # The same on every rank. The classifier starts random, so the seed is part of the result.
    torch.manual_seed(config.training.seed)
    model = build_model(config.model, ctx.data_dir).to(getattr(torch, ctx.precision.storage))
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # dropout from here on, different on every rank
    describe_model(ctx, model)

    training = config.training
    sampler = TrainingSampler.for_run(ctx, len(train.labels), epochs=training.epochs, max_steps=training.max_steps)
    loader = training_loader(train, sampler, config.model.sequence, config.data.num_workers)
    accelerator = ctx.accelerator()
    model = accelerator.prepare(model)  # before the optimizer: moving a model may replace its weights
    plain_optimizer = make_optimizer(model, config)
    # Not prepared by accelerate, which would advance it once per rank in every step.
    schedule = torch.optim.lr_scheduler.LambdaLR(plain_optimizer, lambda step: 1 - step / sampler.full_steps)
    optimizer = accelerator.prepare(plain_optimizer)
    # Evaluated without the data parallel wrapper, whose forward pass could wait for a rank that has one row less.
    plain_model = accelerator.unwrap_model(model)

    evaluate(ctx, plain_model, validation)
    model.train()
    with ctx.training(planned_steps=sampler.planned_steps):
        for epoch in range(sampler.epochs):
            sampler.epoch = epoch
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
                    counts = step_counts(micro_batches)
                    step.done(**counts, loss=loss_sum / max(counts["samples"], 1))
            if evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def make_optimizer(model: Any, config: Any) -> torch.optim.Optimizer:
    # A frozen model still does all the work of a step, so that every rank has gradients to exchange; only the weights
    # do not change.
    rate = 0.0 if config.model.frozen else config.training.learning_rate
    decay = config.training.weight_decay
    if config.training.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay)
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)


def describe_model(ctx: Context, model: Any) -> None:
    describe_transformer(
        ctx,
        ctx.config.model,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matmul_parameters=matmul_parameters(ctx.config.model),
        causal=False,
    )
