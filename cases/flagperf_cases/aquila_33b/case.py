"""The loss of Aquila on LAMBADA, forward only, in tensor parallel: the inference loop."""

from __future__ import annotations

from typing import Any

import torch

from flagperf.worker import Context
from flagperf_cases.aquila_33b.checkpoint import open_checkpoint
from flagperf_cases.aquila_33b.data import Batch, attended_length, load_data, make_batches
from flagperf_cases.aquila_33b.evaluation import results, score, tensors
from flagperf_cases.data_files import data_folder
from flagperf_cases.decoder.initial_weights import fill, initialise
from flagperf_cases.decoder.layout import layout_of
from flagperf_cases.decoder.model import Decoder
from flagperf_cases.decoder.parallel import Place, build_on_meta, find_place
from flagperf_cases.decoder.shape import DecoderShape, sections, shape_of
from flagperf_cases.model_facts import describe_transformer


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
    """This rank's part, in the precision's storage type, from the checkpoint or from random weights."""
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
