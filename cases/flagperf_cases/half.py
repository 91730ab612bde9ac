"""From gradients to weights, in the precision that a run asks for.

Weights in half precision cannot take small changes, and their gradients easily fall out of its range. They are
therefore stepped through float32 masters, and the loss is scaled by a factor that follows the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch.nn.utils import clip_grad_norm_

from flagperf.api import Precision

NamedParameters = list[tuple[str, torch.nn.Parameter]]


class Updates(Protocol):
    """One optimizer step: `scaled(loss).backward()` for every micro-batch, then `apply()`."""

    optimizer: torch.optim.Optimizer

    def scaled(self, loss: torch.Tensor) -> torch.Tensor: ...

    def apply(self) -> bool:
        """Clips, steps and clears the gradients. False where they had overflowed and the weights stay as they were."""
        ...


def make_updates(
    named: Iterable[tuple[str, torch.nn.Parameter]],
    precision: Precision,
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer],
    max_norm: float = 0.0,
) -> Updates:
    """For those of the parameters that are trained. `max_norm` 0 does not clip."""
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    if precision.master_weights == precision.storage:
        return PlainUpdates(trained, make_optimizer(trained), max_norm)
    masters = Masters(trained)
    return HalfUpdates(masters, make_optimizer(masters.named), max_norm, LossScale())


class PlainUpdates:
    def __init__(self, named: NamedParameters, optimizer: torch.optim.Optimizer, max_norm: float) -> None:
        self.optimizer = optimizer
        self._parameters = [parameter for _, parameter in named]
        self._max_norm = max_norm

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def apply(self) -> bool:
        if self._max_norm:
            clip_grad_norm_(self._parameters, self._max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return True


class HalfUpdates:
    def __init__(
        self, masters: Masters, optimizer: torch.optim.Optimizer, max_norm: float, loss_scale: LossScale
    ) -> None:
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self._masters = masters
        self._max_norm = max_norm or math.inf

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return self.loss_scale.scaled(loss)

    def apply(self) -> bool:
        self._masters.take_gradients(self.loss_scale)
        norm = clip_grad_norm_([master for _, master in self._masters.named], self._max_norm)
        # The host waits for the device here, and has to: it decides whether there is a step. Ranks that exchange
        # gradients come to the same decision, since they see the same ones.
        is_finite = bool(norm.isfinite())
        self.loss_scale.update(overflowed=not is_finite)
        if is_finite:
            self.optimizer.step()
            self._masters.give_back()
        self.optimizer.zero_grad()
        return is_finite


class LossScale:
    """Halved when gradients overflow for the `hysteresis`-th time, doubled after `window` steps without."""

    def __init__(self, value: float = 2.0**32, window: int = 1000, hysteresis: int = 2, floor: float = 1.0) -> None:
        self.value = value
        self._window = window
        self._hysteresis = self._tolerated = hysteresis
        self._floor = floor
        self._steps_without = 0

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.value

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


class Masters:
    """float32 copies of weights. The optimizer knows only them; the weights follow."""

    def __init__(self, named: NamedParameters) -> None:
        self._weights = [weight for _, weight in named]
        self.named = [(name, torch.nn.Parameter(weight.detach().float().clone())) for name, weight in named]

    def take_gradients(self, loss_scale: LossScale) -> None:
        """Unscaled in float32, where they fit; the weights keep none."""
        for weight, (_, master) in zip(self._weights, self.named, strict=True):
            master.grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        loss_scale.unscale(master.grad for _, master in self.named if master.grad is not None)

    def give_back(self) -> None:
        with torch.no_grad():
            for weight, (_, master) in zip(self._weights, self.named, strict=True):
                weight.copy_(master)
