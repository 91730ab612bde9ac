"""Tells the context what a transformer is, for MFU."""

from __future__ import annotations

from typing import Any

from flagperf.worker import Context


def describe_transformer(
    ctx: Context,
    shape: Any,
    *,
    parameters: int,
    matmul_parameters: int,
    causal: bool,
    sequence: int | None = None,
    **more: int | None,
) -> None:
    """`shape` has layers, heads, width and sequence; `more` are further counts that `ctx.describe_model` takes."""
    ctx.describe_model(
        parameters=parameters,
        matmul_parameters=matmul_parameters,
        layers=shape.layers,
        heads=shape.heads,
        head_size=shape.width // shape.heads,
        sequence=sequence or shape.sequence,
        causal=causal,
        **more,
    )
