"""LoRA fine-tuning of Llama on dialogues and their summaries, then MMLU: the training loop."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, pad

from flagperf.worker import Context
from flagperf_cases.llama2_7b_finetune.checkpoint import CHECKPOINT
from flagperf_cases.llama2_7b_finetune.data import IGNORED, Data, load_data, training_loader
from flagperf_cases.llama2_7b_finetune.evaluation import evaluate_loss, evaluate_mmlu
from flagperf_cases.llama2_7b_finetune.model import (
    NOMINAL_PARAMETERS,
    build_model,
    matmul_parameters,
    save_merged,
    trainable,
)
from flagperf_cases.model_facts import describe_transformer
from flagperf_cases.sampler import TrainingSampler, step_counts


def run(ctx: Context) -> None:
    config = ctx.config
    data = load_data(config, ctx.data_dir)
    for rows in (data.train, data.validation, data.test):
        ctx.describe_data(rows.name, len(rows), rows.sha256)

    torch.manual_seed(config.training.seed)  # the same on every rank: adapters start random
    model = build_model(config, ctx.precision, ctx.data_dir, ctx.device)
    torch.manual_seed(config.training.seed + 1 + ctx.rank)  # dropout from here on, different on every rank
    describe_model(ctx, model)

    trainer = Trainer(ctx, model)
    evaluate_loss(ctx, trainer.plain_model, data.validation, "val_loss")
    epochs = train(ctx, trainer, data)
    ctx.report(loss=mean_of_epochs(ctx, epochs))
    evaluate_loss(ctx, trainer.plain_model, data.test, "test_loss")
    evaluate_mmlu(ctx, trainer.plain_model, data)
    if config.model.save_to and ctx.rank == 0:
        checkpoint = ctx.data_dir / CHECKPOINT if config.model.checkpoint and ctx.data_dir else None
        save_merged(trainer.plain_model, Path(config.model.save_to), checkpoint)


def train(ctx: Context, trainer: Trainer, data: Data) -> list[EpochLosses]:
    training = ctx.config.training
    sampler = TrainingSampler.for_run(
        ctx, len(data.train), epochs=training.epochs, max_steps=training.max_steps, shuffle=training.shuffle
    )
    loader = training_loader(data.train, sampler, ctx.config.data.num_workers)
    epochs = []
    trainer.model.train()
    with ctx.training(planned_steps=sampler.planned_steps):
        for epoch in range(sampler.epochs):
            sampler.epoch = epoch
            epochs.append(EpochLosses(ctx.device))
            for micro_batches in ctx.batches(loader):
                epochs[-1].add(*trainer.step(micro_batches))
            trainer.schedule.step()
            evaluate_loss(ctx, trainer.plain_model, data.validation, "val_loss")
    return epochs


class Trainer:
    """The model on its device, with its optimizer, schedule and loss scaler."""

    def __init__(self, ctx: Context, model: Any) -> None:
        self._ctx = ctx
        self._accelerator = ctx.accelerator()
        self.model = self._accelerator.prepare(model)  # before the optimizer: moving a model may replace its weights
        # Evaluated without the data parallel wrapper, whose forward pass could wait for a rank that has one row less.
        self.plain_model = self._accelerator.unwrap_model(self.model)
        training = ctx.config.training
        # A frozen model still does all the work of a step; only its adapters do not change.
        rate = 0.0 if ctx.config.model.frozen else training.learning_rate
        # Not prepared by accelerate, whose wrapper looks for a package at every step: 1.5 % of a step of 35 ms.
        self._optimizer = torch.optim.AdamW(trainable(self.model), lr=rate, weight_decay=training.weight_decay)
        self.schedule = torch.optim.lr_scheduler.StepLR(self._optimizer, step_size=1, gamma=training.decay)
        self._scaler = ctx.gradient_scaler()  # small gradients underflow on their way through a float16 base

    def step(self, micro_batches: list[dict[str, Any]]) -> tuple[torch.Tensor, int]:
        """One optimizer step. Returns the sum of the losses of this rank's real rows, and their number."""
        with self._ctx.step() as step:
            loss_sum = torch.zeros((), device=self._ctx.device)
            for index, batch in enumerate(micro_batches):
                is_last = index == len(micro_batches) - 1
                with nullcontext() if is_last else self._accelerator.no_sync(self.model):
                    loss = sum_of_losses(self.model(input_ids=batch["input_ids"], use_cache=False).logits, batch)
                    self._scaler.scale(loss * batch["scale"]).backward()
                loss_sum += loss.detach()
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad()
            counts = step_counts(micro_batches)
            step.done(**counts, loss=loss_sum / max(counts["samples"], 1))
        return loss_sum, counts["samples"]


def sum_of_losses(logits: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """Over the rows of a batch; a row's loss is the mean over all its positions but the first. Repeated rows have no
    labels.

    The labels are shifted rather than the logits, which would be copied.
    """
    expected = pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    total = cross_entropy(logits.float().flatten(0, 1), expected.flatten(), reduction="sum", ignore_index=IGNORED)
    return total / (logits.shape[1] - 1)


class EpochLosses:
    """Sums of this rank, read after training."""

    def __init__(self, device: str) -> None:
        self.total = torch.zeros((), device=device)
        self.rows = 0

    def add(self, loss_sum: torch.Tensor, rows: int) -> None:
        self.total += loss_sum
        self.rows += rows


def mean_of_epochs(ctx: Context, epochs: list[EpochLosses]) -> float:
    """The mean over epochs of the mean over their rows."""
    sums = ctx.sum_over_ranks(*(float(epoch.total) for epoch in epochs), *(epoch.rows for epoch in epochs))
    totals, rows = sums[: len(epochs)], sums[len(epochs) :]
    return sum(total / count for total, count in zip(totals, rows, strict=True)) / len(epochs)


def describe_model(ctx: Context, model: Any) -> None:
    """The parameters are those of the base; the adapters count separately."""
    adapters = sum(parameter.numel() for parameter in trainable(model))
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    describe_transformer(
        ctx,
        ctx.config.model,
        parameters=base,
        matmul_parameters=matmul_parameters(ctx.config.model),
        causal=True,
        nominal_parameters=NOMINAL_PARAMETERS.get(base),
        lora_parameters=adapters,
    )
