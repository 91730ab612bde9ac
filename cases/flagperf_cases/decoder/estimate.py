"""Estimate the memory of the fullest rank before anything is launched. Importable without torch.

Counts tensors at the peak of a step: weights, gradients, optimizer state, the activations of the micro-batches in
flight, and what pipeline stages receive. Does not count the framework itself, the buffers of the collective library,
temporary values of the optimizer and allocator fragmentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flagperf_cases.decoder.layout import DecoderShape, Layout, check_layout, layout_of, shape_of

FP32 = 4


@dataclass(frozen=True)
class Work:
    """Holds the settings of a training step that affect memory."""

    micro_batch: int
    num_micro_batches: int
    compute_bytes: int = FP32
    recompute: bool = False
    moments: int = 2
    """Numbers that the optimizer keeps per parameter."""


def estimate(values: dict[str, Any]) -> dict[str, int]:
    """Return the bytes by name of the rank that needs the most."""
    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    training = values["training"]
    check_layout(shape, layout, training["accumulate"])
    work = Work(
        micro_batch=training["batch_size"],
        num_micro_batches=training["accumulate"],
        compute_bytes=compute_bytes(values["precision"]),
        recompute=values["model"]["recompute"],
        moments=2 if training["optimizer"] == "adamw" else 0,
    )
    stages = [rank_bytes(shape, layout, stage, work) for stage in range(layout.pp)]
    return max(stages, key=lambda parts: sum(parts.values()))


def compute_bytes(precision: str) -> int:
    return 2 if precision.endswith(("bf16", "fp16")) else FP32


def rank_bytes(shape: DecoderShape, layout: Layout, stage: int, work: Work) -> dict[str, int]:
    count = stage_parameters(shape, layout, stage)
    gradients, activations = _gradients(shape, layout, stage, work), _activations(shape, layout, stage, work)
    if work.num_micro_batches == 1:  # activations are freed as gradients appear
        activations = max(0, activations - gradients)
    return {
        "parameters": FP32 * count // layout.dp + _gathered(shape, layout, stage, work),
        "gradients": gradients,
        "optimizer state": FP32 * work.moments * count // layout.dp,
        "activations": activations,
    }


def stage_parameters(shape: DecoderShape, layout: Layout, stage: int) -> int:
    """Count the parameters of one tensor parallel rank. Each of them holds all norms."""
    layers = len(layout.stage_layers(shape.layers)[stage])
    count = layers * _layer_parameters(shape, layout)
    table = shape.vocabulary_parameters // layout.tp
    has_both = stage == 0 and stage == layout.pp - 1
    if stage == 0:
        count += table
    if stage == layout.pp - 1:
        count += shape.width + (0 if shape.tied and has_both else table)
    return count


def _layer_parameters(shape: DecoderShape, layout: Layout) -> int:
    return shape.layer_matmul_parameters // layout.tp + 2 * shape.width


def _gathered(shape: DecoderShape, layout: Layout, stage: int, work: Work) -> int:
    """Count the weights in the compute type, in addition to the rank's fp32 part: of the whole stage in a pipeline,
    which keeps them for all micro-batches, and in a single process without recomputation; otherwise of two blocks and
    the tables."""
    is_mixed = work.compute_bytes != FP32
    if layout.dp == 1 and not is_mixed:
        return 0
    whole, layer = stage_parameters(shape, layout, stage), _layer_parameters(shape, layout)
    if layout.pp > 1 or (layout.world_size == 1 and not work.recompute):
        return work.compute_bytes * whole
    layers = len(layout.stage_layers(shape.layers)[stage])
    return work.compute_bytes * (whole - (layers - min(2, layers)) * layer)


def _gradients(shape: DecoderShape, layout: Layout, stage: int, work: Work) -> int:
    """Count the gradients. Data parallel ranks accumulate whole ones until the last micro-batch, and then keep their
    part. Every tensor parallel rank holds that of the whole embedding until the end of the step."""
    count = stage_parameters(shape, layout, stage)
    if stage == 0:
        count += shape.vocabulary_parameters - shape.vocabulary_parameters // layout.tp
    adds_up = layout.dp > 1 and (work.num_micro_batches > 1 or layout.pp > 1)
    return FP32 * (count if adds_up else count // layout.dp)


def _activations(shape: DecoderShape, layout: Layout, stage: int, work: Work) -> int:
    """Count the peak, which is before the backward pass of the loss, or in that of the last block, which recomputation
    fills only then."""
    positions, size = work.micro_batch * shape.sequence, work.compute_bytes
    layers = len(layout.stage_layers(shape.layers)[stage])
    in_flight = min(layout.pp - stage, work.num_micro_batches)
    states = positions * shape.width * size // layout.tp
    # What the backward pass of one block needs, term by term as in model.py.
    norms = 2 * positions * shape.width // layout.tp * (FP32 + FP32)  # input and normed, both in fp32
    gathered = 2 * positions * shape.width * size  # inputs of the projections, at all positions
    attention = positions * (2 * shape.width + 2 * shape.kv_width) // layout.tp * size
    block, head = norms + gathered + attention + 4 * positions * shape.ffn // layout.tp * size, 0
    if stage == layout.pp - 1:
        # The last norm, the head's input, logits as computed and in fp32, their log-softmax and its gradients.
        norm = positions * shape.width // layout.tp * (FP32 + FP32)
        logits = positions * shape.vocabulary // layout.tp * (size + 3 * FP32)
        head = norm + positions * shape.width * size + logits
    kept = in_flight * layers * (states if work.recompute else block)
    # Gradients of activations inside a block: of gate and up, and of their input.
    passing = 2 * positions * (shape.ffn // layout.tp + shape.width) * size
    backward = passing + (block if work.recompute else 0)
    # Receive buffers: the inputs of the micro-batches in flight, and one gradient.
    received = (in_flight if stage > 0 else 0) + (stage < layout.pp - 1)
    return kept + max(head, backward) + received * states
