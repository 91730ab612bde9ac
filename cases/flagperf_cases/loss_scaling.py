"""Make optimizer steps in the precision of a run, with dynamic loss scaling for float16.

Weights in float16 cannot represent small updates, and their gradients easily overflow or underflow. They are therefore
updated through float32 master weights, and the loss is multiplied by a scale that follows the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch.nn.utils import clip_grad_norm_

from flagperf.api import Precision

NamedParameters = list[tuple[str, torch.nn.Parameter]]


class Updater(Protocol):
    """Makes one optimizer step: `scale(loss).backward()` for every micro-batch, then `step()`."""

    optimizer: torch.optim.Optimizer

    def scale(self, loss: torch.Tensor) -> torch.Tensor: ...

    def step(self) -> bool:
        """Clip, step and clear the gradients. Return False, with unchanged weights, if the gradients overflowed."""
        ...


def make_updater(
    named: Iterable[tuple[str, torch.nn.Parameter]],
    precision: Precision,
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer],
    max_norm: float = 0.0,
) -> Updater:
    """Make an updater for the trainable parameters among `named`. `max_norm` 0 disables clipping."""
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    if precision.master_weights == precision.storage:
        return PlainUpdater(trained, make_optimizer(trained), max_norm)
    masters = MasterWeights(trained)
    return LossScalingUpdater(masters, make_optimizer(masters.named), max_norm, LossScale())


class PlainUpdater:
    def __init__(self, named: NamedParameters, optimizer: torch.optim.Optimizer, max_norm: float) -> None:
        self.optimizer = optimizer
        self._parameters = [parameter for _, parameter in named]
        self._max_norm = max_norm

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def step(self) -> bool:
        if self._max_norm:
            clip_grad_norm_(self._parameters, self._max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return True


class LossScalingUpdater:
    def __init__(
        self, masters: MasterWeights, optimizer: torch.optim.Optimizer, max_norm: float, loss_scale: LossScale
    ) -> None:
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self._masters = masters
        self._max_norm = max_norm or math.inf

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.loss_scale.value

    def step(self) -> bool:
        self._masters.take_gradients(self.loss_scale)
        norm = clip_grad_norm_([master for _, master in self._masters.named], self._max_norm)
        # The host has to wait for the device here to decide whether to step. All ranks decide alike, because they see
        # the same reduced gradients.
        is_finite = bool(norm.isfinite())
        self.loss_scale.update(overflowed=not is_finite)
        if is_finite:
            self.optimizer.step()
            self._masters.copy_to_model()
        self.optimizer.zero_grad()
        return is_finite


class LossScale:
    """Is halved at the `hysteresis`-th overflow and every later one, doubled after `window` steps without overflow."""

    def __init__(self, value: float = 2.0**32, window: int = 1000, hysteresis: int = 2, floor: float = 1.0) -> None:
        self.value = value
        self._window = window
        self._hysteresis = self._tolerated = hysteresis
        self._floor = floor
        self._steps_without = 0

    def unscale(self, gradients: Iterable[torch.Tensor]) -> None:
        for gradient in gradients:
            gradient.div_(self.value)

    def update(self, *, overflowed: bool) -> None:
        if overflowed:
            self._steps_without = 0
            if self._tolerated > 1:
                self._tolerated -= 1
            else:
                self.value = max(self.value / 2, self._floor)
            return
        self._steps_without += 1
        if self._steps_without % self._window == 0:
            self.value *= 2
            self._tolerated = self._hysteresis


class MasterWeights:
    """Keeps float32 copies of the model's weights. The optimizer updates only the copies; the model's weights
    follow."""

    def __init__(self, named: NamedParameters) -> None:
        self._weights = [weight for _, weight in named]
        self.named = [(name, torch.nn.Parameter(weight.detach().float().clone())) for name, weight in named]

    def take_gradients(self, loss_scale: LossScale) -> None:
        """Move the gradients from the model to the copies and unscale them in float32."""
        for weight, (_, master) in zip(self._weights, self.named, strict=True):
            master.grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        loss_scale.unscale(master.grad for _, master in self.named if master.grad is not None)

    def copy_to_model(self) -> None:
        with torch.no_grad():
            for weight, (_, master) in zip(self._weights, self.named, strict=True):
                weight.copy_(master)
