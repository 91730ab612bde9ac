"""A model in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients, known to hold for every part: one that still drops inputs would answer at
    random. Afterwards the model is in the mode that it was in."""
    was_training = model.training
    model.eval()
    busy = [name for name, module in model.named_modules() if module.training]
    if busy:
        raise RuntimeError(f"the model is evaluated while {busy[0] or 'it'} is in training mode")
    with torch.no_grad():
        yield
    model.train(was_training)
