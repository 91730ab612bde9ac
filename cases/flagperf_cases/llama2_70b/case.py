"""Pre-train Llama 2 from random weights in tensor, pipeline and data parallel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from flagperf.worker import Context
from flagperf_cases.decoder.layout import DecoderShape, bubble, layout_of, sections, shape_of
from flagperf_cases.decoder.model import Decoder
from flagperf_cases.decoder.parallel import Place, Trainer, build_model, clip, find_place, total_norm
from flagperf_cases.llama2_70b.data import Samples, load_data
from flagperf_cases.models import describe_transformer


def run(ctx: Context) -> None:
    values = sections(ctx.config)
    training, model_values = ctx.config.training, ctx.config.model
    samples = load_data(values, ctx.data_dir)
    ctx.describe_data(samples.name, len(samples), samples.sha256)

    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    place = find_place(layout, torch.device(ctx.device).type)
    autocast = getattr(torch, ctx.precision.autocast) if ctx.precision.autocast else None
    model = build_model(
        shape,
        place,
        device=ctx.device,
        seed=training.seed,
        std=model_values.initial_std,
        recompute=model_values.recompute,
        autocast=autocast,
    )
    describe_model(ctx, shape)

    trainer = Trainer(
        model, place, micro_batch=training.batch_size, num_micro_batches=training.accumulate, device=ctx.device
    )
    optimizer = make_optimizer(model, training)
    global_batch = training.batch_size * training.accumulate * layout.dp
    num_steps = training.max_steps or max(1, training.max_samples // global_batch)
    with ctx.training(planned_steps=num_steps):
        for step, batch in enumerate(ctx.batches(batches(samples, place, global_batch, num_steps))):
            set_rate(optimizer, training, consumed=step * global_batch)
            train_step(ctx, trainer, optimizer, batch)
    ctx.report(bubble_theory=bubble(layout.pp, training.accumulate))


def train_step(
    ctx: Context, trainer: Trainer, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]
) -> None:
    model, place, max_norm = trainer.model, trainer.place, ctx.config.training.clip
    with ctx.step() as step:
        loss = trainer.backward(batch["inputs"], batch["labels"])
        if max_norm:
            clip(model, total_norm(model, place), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        step.done(**step_counts(place, batch["inputs"], loss))


def batches(samples: Samples, place: Place, global_batch: int, num_steps: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield all micro-batches of this replica, step by step. The samples of a step do not depend on the layout."""
    for step in range(num_steps):
        rows = samples.global_batch(step, global_batch)
        tokens = torch.tensor([samples[row] for row in rows[place.dp_rank :: place.layout.dp]])
        yield {"inputs": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}


def step_counts(place: Place, inputs: torch.Tensor, loss: torch.Tensor | None) -> dict[str, Any]:
    """Many ranks work on a sample, and one of them counts it."""
    if not place.counts:
        return {"samples": 0}
    return {"samples": inputs.shape[0], "tokens": inputs.numel(), "loss": loss}


def describe_model(ctx: Context, shape: DecoderShape) -> None:
    describe_transformer(
        ctx,
        shape,
        parameters=shape.parameters,
        matmul_parameters=shape.matmul_parameters,
        causal=True,
        nominal_parameters=ctx.config.model.nominal_parameters or None,
    )


def make_optimizer(model: Decoder, training: Any) -> torch.optim.Optimizer:
    """Norms have no weight decay."""
    parameters = list(model.parameters())
    groups = [
        {"params": [value for value in parameters if value.ndim > 1], "weight_decay": training.weight_decay},
        {"params": [value for value in parameters if value.ndim == 1], "weight_decay": 0.0},
    ]
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.learning_rate)
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=(training.beta1, training.beta2), eps=1e-8)


def set_rate(optimizer: torch.optim.Optimizer, training: Any, consumed: int) -> None:
    rate = learning_rate(
        consumed,
        total=training.max_samples,
        warmup=training.warmup_fraction * training.max_samples,
        highest=training.learning_rate,
        lowest=training.lowest_learning_rate,
    )
    for group in optimizer.param_groups:
        group["lr"] = rate


def learning_rate(consumed: int, *, total: int, warmup: float, highest: float, lowest: float) -> float:
    """Return the rate of the step that begins after `consumed` samples, as in Megatron: linear warm-up from 0, so that
    the first step changes nothing, then a cosine down to `lowest`, which is reached after `total` samples."""
    if consumed <= warmup and warmup:
        return highest * consumed / warmup
    progress = min(1.0, (consumed - warmup) / (total - warmup))
    return lowest + 0.5 * (math.cos(math.pi * progress) + 1) * (highest - lowest)
