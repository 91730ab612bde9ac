"""DistilBERT learns whether a sentence is positive or negative."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from flagperf.worker import Context
from flagperf_cases.checkpoint_files import check_shapes, find_weights, read_tensors, shapes_of
from flagperf_cases.distilbert.data import (
    CHECKPOINT,
    FIT_CHECKPOINT,
    GET_CHECKPOINT,
    POSITIONS,
    Sentences,
    encoder_part,
    load_data,
)
from flagperf_cases.models import describe_transformer, evaluation_mode
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, evaluation_rows, step_counts, step_loader

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def run(ctx: Context) -> None:
    """Train until the target accuracy, or the planned epochs."""
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
                train_step(ctx, accelerator, model, optimizer, schedule, micro_batches)
            if evaluate(ctx, plain_model, validation) >= config.evaluation.target:
                break


def train_step(
    ctx: Context, accelerator: Any, model: Any, optimizer: Any, schedule: Any, micro_batches: list[Batch]
) -> None:
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


def evaluate(ctx: Context, model: Any, sentences: Sentences) -> float:
    """Return the accuracy over all ranks; every row is counted once."""
    config = ctx.config
    num_rows = min(len(sentences.labels), config.evaluation.max_rows or len(sentences.labels))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        correct = torch.zeros((), dtype=torch.long, device=ctx.device)
        for first in range(0, len(mine), config.evaluation.batch_size):
            batch = padded_batch(sentences, mine[first : first + config.evaluation.batch_size], config.model.sequence)
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


# --- batches ----------------------------------------------------------------------------------------------------------


def training_loader(sentences: Sentences, sampler: TrainingSampler, sequence: int, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, sentences, sequence), sampler, num_workers)


def _batch(sentences: Sentences, sequence: int, micro: MicroBatch) -> Batch:
    pairs = zip(micro.rows, micro.weights, strict=True)
    num_tokens = sum(len(sentences.tokens[row]) * weight for row, weight in pairs)
    return {
        **padded_batch(sentences, micro.rows, sequence),
        "weights": torch.tensor(micro.weights, dtype=torch.float32),
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": len(micro.rows) * sequence - num_tokens,
    }


def padded_batch(sentences: Sentences, rows: Sequence[int], sequence: int) -> dict[str, torch.Tensor]:
    input_ids = torch.zeros(len(rows), sequence, dtype=torch.long)
    attention_mask = torch.zeros(len(rows), sequence, dtype=torch.long)
    for index, row in enumerate(rows):
        tokens = sentences.tokens[row]
        input_ids[index, : len(tokens)] = torch.tensor(tokens)
        attention_mask[index, : len(tokens)] = 1
    labels = torch.tensor([sentences.labels[row] for row in rows])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


# --- model ------------------------------------------------------------------------------------------------------------


def build_model(values: Any, data_dir: Path | None = None) -> Any:
    config = DistilBertConfig(
        n_layers=values.layers,
        dim=values.width,
        n_heads=values.heads,
        hidden_dim=values.ffn,
        vocab_size=values.vocabulary,
        max_position_embeddings=values.sequence,
        dropout=values.dropout,
        attention_dropout=values.attention_dropout,
        seq_classif_dropout=values.classifier_dropout,
        num_labels=2,
    )
    model = DistilBertForSequenceClassification(config)
    if values.checkpoint:
        assert data_dir is not None, "check_files requires --data-dir"
        load_checkpoint(model, data_dir / CHECKPOINT)
    return model


def matmul_parameters(values: Any) -> int:
    """Count the weights of the matrix products of all layers. The classifier sees one position per row and does not
    count."""
    return int(values.layers * (4 * values.width**2 + 2 * values.width * values.ffn))


def load_checkpoint(model: Any, folder: Path) -> None:
    """Load every weight of the encoder. A model with fewer layers or positions takes the first ones."""
    files = find_weights(folder, GET_CHECKPOINT)
    found = encoder_part(read_tensors(files, GET_CHECKPOINT), model.config.n_layers)
    if POSITIONS in found:
        found[POSITIONS] = found[POSITIONS][: model.config.max_position_embeddings]
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("distilbert.")}
    check_shapes(files[0], shapes_of(found), shapes_of(wanted), FIT_CHECKPOINT)
    model.load_state_dict(found, strict=False)
