"""Estimates the memory of a rank before anything is launched. Importable without torch.

Counts tensors: weights, and the peak of a batch of the longest samples that the values allow. There is no KV cache,
because nothing is generated. Does not count the framework itself, the buffers of the collective library and allocator
fragmentation.
"""

from __future__ import annotations

from typing import Any

from flagperf_cases.aquila_33b.preflight import check_parallel_values
from flagperf_cases.decoder.estimate import FP32, compute_bytes, stage_parameters
from flagperf_cases.decoder.layout import Layout, layout_of
from flagperf_cases.decoder.shape import DecoderShape, shape_of


def estimate(values: dict[str, Any]) -> dict[str, int]:
    """Bytes by name. All ranks need the same."""
    check_parallel_values(values)
    shape, layout, inference = shape_of(values["model"]), layout_of(values["parallel"]), values["inference"]
    length = inference["pad_to"] or -(-shape.sequence // inference["multiple"]) * inference["multiple"]
    positions, size = inference["batch_size"] * length, compute_bytes(values["precision"])
    return {
        "parameters": size * stage_parameters(shape, layout, 0),
        "activations": max(_block(shape, layout, positions, size), _head(shape, layout, positions, size)),
    }


def _block(shape: DecoderShape, layout: Layout, positions: int, size: int) -> int:
    """In the feed-forward: the block's input and the output of attention, both for the rank's positions only; the input
    of the projections; gate, up and their product."""
    return positions * size * (2 * shape.width // layout.tp + shape.width + 3 * shape.ffn // layout.tp)


def _head(shape: DecoderShape, layout: Layout, positions: int, size: int) -> int:
    """The head's input; logits as computed and in fp32, their differences from the maximum, and the exponentials."""
    num_copies = 2 if size == FP32 else 3
    logits = positions * shape.vocabulary // layout.tp * (size + num_copies * FP32)
    return positions * shape.width * size + logits
