"""Compute the loss of Aquila on LAMBADA, forward only, in tensor parallel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp, all_reduce

from flagperf.worker import Context
from flagperf_cases.aquila_33b.checkpoint import open_checkpoint
from flagperf_cases.aquila_33b.data import Batch, attended_length, load_data, make_batches
from flagperf_cases.data_files import data_folder
from flagperf_cases.decoder.layout import DecoderShape, layout_of, sections, shape_of
from flagperf_cases.decoder.model import Decoder, fill, initialise
from flagperf_cases.decoder.parallel import Place, build_on_meta, find_place
from flagperf_cases.models import describe_transformer


def run(ctx: Context) -> None:
    values = sections(ctx.config)
    inference, samples = ctx.config.inference, load_data(values, ctx.data_dir)
    ctx.describe_data(samples.name, len(samples.rows), samples.sha256)

    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    place = find_place(layout, torch.device(ctx.device).type)
    model = load_model(ctx, shape, place)
    batches = make_batches(samples.rows, inference.batch_size, multiple=inference.multiple, pad_to=inference.pad_to)
    describe_model(ctx, shape, attended_length(batches))

    scores = []
    # Not inference_mode: DTensor raises and catches exceptions in it, whose frames keep tensors alive until the next
    # garbage collection.
    with torch.no_grad(), ctx.inference(planned_steps=len(batches)):
        for batch, given in zip(batches, ctx.batches(map(tensors, batches)), strict=True):
            with ctx.step() as step:
                scores.append(score(model(given["inputs"]), given, place))
                step.done(**step_counts(place, batch))
        with ctx.evaluation():
            found = results(scores)
    ctx.report(**found)


def load_model(ctx: Context, shape: DecoderShape, place: Place) -> Decoder:
    """Load this rank's part, in the precision's storage type, from the checkpoint or from random weights."""
    config = ctx.config.model
    model = build_on_meta(shape, place)
    model.to(getattr(torch, ctx.precision.storage)).eval()
    if config.checkpoint == "none":
        initialise(model, config.seed, config.initial_std, ctx.device)
    else:
        folder = data_folder(ctx.data_dir, "weights, tokenizer and texts")
        weight = open_checkpoint(folder, config.checkpoint, shape)
        fill(model, ctx.device, lambda name, _parameter: weight(name))
    return model


def step_counts(place: Place, batch: Batch) -> dict[str, Any]:
    """All ranks work on each sample, and one of them counts it."""
    if not place.counts:
        return {"samples": 0}
    return {"samples": len(batch.rows), "tokens": batch.num_real, "padded_tokens": batch.num_padding}


def describe_model(ctx: Context, shape: DecoderShape, sequence: int) -> None:
    describe_transformer(
        ctx,
        shape,
        parameters=shape.parameters,
        matmul_parameters=shape.matmul_parameters,
        causal=True,
        sequence=sequence,
        nominal_parameters=ctx.config.model.nominal_parameters or None,
    )


# --- scores -----------------------------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """Holds a number per sample, on the device."""

    nll_sum: torch.Tensor
    num_tokens: torch.Tensor
    last_word_right: torch.Tensor


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """Return inputs, labels and two masks: positions that are scored, and those of the last word."""
    shape = (len(batch.rows), batch.length)
    inputs, labels = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    scored, last_word = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for index, row in enumerate(batch.rows):
        inputs[index, : row.length] = torch.tensor(row.tokens[:-1])
        labels[index, : row.length] = torch.tensor(row.tokens[1:])
        scored[index, : row.length] = True
        end = row.length - 1  # position of the end token
        last_word[index, end - row.last_word : end] = True
    return {"inputs": inputs, "labels": labels, "scored": scored, "last_word": last_word}


def score(logits: torch.Tensor, batch: dict[str, Any], place: Place) -> Scores:
    """Return the scores from this rank's part of the logits: a label is among those of one rank only."""
    logits, size = logits.float(), logits.shape[-1]
    own = batch["labels"] - place.tp_rank * size
    is_here = (own >= 0) & (own < size)
    picked = logits.gather(-1, own.clamp(0, size - 1).unsqueeze(-1)).squeeze(-1) * is_here
    best = _reduced(logits.amax(-1), ReduceOp.MAX, place)
    total = _reduced((logits - best.unsqueeze(-1)).exp().sum(-1), ReduceOp.SUM, place)
    label_logit = _reduced(picked, ReduceOp.SUM, place)
    nll, is_best = total.log() + best - label_logit, label_logit >= best
    scored, last_word = batch["scored"], batch["last_word"]
    return Scores((nll * scored).sum(1), scored.sum(1), (is_best | ~last_word).all(1))


def _reduced(values: torch.Tensor, how: Any, place: Place) -> torch.Tensor:
    if place.layout.tp > 1:
        all_reduce(values, how, group=place.part("tp").get_group())
    return values


def results(scores: Sequence[Scores]) -> dict[str, float]:
    """Return the means over all samples, by the names of case.toml."""
    nll, count, right = (torch.cat(parts).cpu().double() for parts in zip(*scores, strict=True))
    loss = float((nll / count).mean())
    return {
        "loss": loss,
        "loss_per_token": float(nll.sum() / count.sum()),
        "perplexity": math.exp(min(loss, 700.0)),
        "acc": float(right.mean()),
        "evaluated": len(nll),
    }
