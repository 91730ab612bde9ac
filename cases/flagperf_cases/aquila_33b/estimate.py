"""How much memory a rank will need, before anything is launched. Light.

Counted are tensors: weights, and the fullest moment of a batch of the longest samples that the values allow. There is
no cache of keys and values, since nothing is generated. Not counted are the framework itself, the buffers of the
collective library and the allocator's gaps.
"""

from __future__ import annotations

from typing import Any

from flagperf_cases.aquila_33b.data import check_spread
from flagperf_cases.decoder.estimate import FP32, compute_bytes, stage_parameters
from flagperf_cases.decoder.shape import DecoderShape, Layout, layout_of, shape_of


def estimate(values: dict[str, Any]) -> dict[str, int]:
    """For the values of the case: bytes by name. All ranks need the same."""
    check_spread(values)
    shape, layout, inference = shape_of(values["model"]), layout_of(values["parallel"]), values["inference"]
    length = inference["pad_to"] or -(-shape.sequence // inference["multiple"]) * inference["multiple"]
    positions, size = inference["batch_size"] * length, compute_bytes(values["precision"])
    return {
        "parameters": size * stage_parameters(shape, layout, 0),
        "activations": max(_block(shape, layout, positions, size), _head(shape, layout, positions, size)),
    }


def _block(shape: DecoderShape, layout: Layout, positions: int, size: int) -> int:
    """In the feed-forward: the block's input and what attention made of it, both of the rank's positions; what the
    projections read; gate, up and their product."""
    return positions * size * (2 * shape.width // layout.tp + shape.width + 3 * shape.ffn // layout.tp)


def _head(shape: DecoderShape, layout: Layout, positions: int, size: int) -> int:
    """What the head reads; logits as computed and in fp32, their distances from the best, the exponentials of these."""
    num_copies = 2 if size == FP32 else 3
    logits = positions * shape.vocabulary // layout.tp * (size + num_copies * FP32)
    return positions * shape.width * size + logits
