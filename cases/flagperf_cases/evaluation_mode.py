"""A model in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the model is back in the mode that it was in.

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
