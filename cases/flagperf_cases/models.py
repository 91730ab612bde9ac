"""Put a model into evaluation mode, and tell the context what it needs for MFU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flagperf.worker import Context


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Enter evaluation mode without gradients; afterwards the model is back in the mode that it was in.

    Every submodule is checked: a dropout that is still active would make the results random.
    """
    was_training = model.training
    model.eval()
    still_training = [name for name, module in model.named_modules() if module.training]
    if still_training:
        raise RuntimeError(f"the model is evaluated while {still_training[0] or 'it'} is in training mode")
    with torch.no_grad():
        yield
    model.train(was_training)


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
    """Tell the context what a transformer is. `shape` has layers, heads, width and sequence; `more` are further counts
    that `ctx.describe_model` takes."""
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
