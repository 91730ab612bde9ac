"""Gradients of a model that is spread over ranks: tied weights on two stages, the total norm, clipping.

The norm is computed from local sums of squares and one all-reduce. A tensor that several ranks hold is counted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from flagperf_cases.decoder.model import Decoder

if TYPE_CHECKING:
    from flagperf_cases.decoder.parallel import Place


class TiedGradients:
    """Adds up the gradients of embedding and head, which are one tensor on the first and the last stage."""

    def __init__(self, model: Decoder, place: Place) -> None:
        self._weight: nn.Parameter | None = None
        layout = place.layout
        if not model.shape.tied or layout.pp == 1:
            return
        step = layout.dp * layout.tp
        for first in range(step):  # every rank has to take part in creating every group
            ranks = [first, first + (layout.pp - 1) * step]
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self._group = group
                self._weight = (model.embed_tokens or model.lm_head).weight  # type: ignore[union-attr]

    def add_up(self) -> None:
        if self._weight is not None and self._weight.grad is not None:
            dist.all_reduce(_local_gradient(self._weight), group=self._group)


def total_norm(model: Decoder, place: Place) -> torch.Tensor:
    """Of all gradients of the model, the same on every rank."""
    squares = [_square_sum(parameter) for parameter in _owned(model, place) if parameter.grad is not None]
    device = next(model.parameters()).device
    total = torch.stack(squares).sum() if squares else torch.zeros((), device=device)
    if place.layout.world_size > 1:
        dist.all_reduce(total)
    return total.sqrt()


def clip(model: Decoder, norm: torch.Tensor, max_norm: float) -> None:
    """Like torch.nn.utils.clip_grad_norm_, without waiting for the device."""
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in model.parameters():
        if parameter.grad is not None:
            _local_gradient(parameter).mul_(factor)


def _owned(model: Decoder, place: Place) -> list[nn.Parameter]:
    """All parameters except a tied head, which is a copy of the first stage's embedding."""
    is_copy = model.shape.tied and not place.is_first_stage
    return [value for name, value in model.named_parameters() if not (is_copy and name == "lm_head.weight")]


def _square_sum(parameter: nn.Parameter) -> torch.Tensor:
    """Uses sum(), which adds pairwise: on a CPU torch 2.13's vector_norm adds sequentially, and for the 235 M equal
    numbers of a published feed-forward weight its result is 24 % too small."""
    total = _local_gradient(parameter).float().square().sum()
    if isinstance(parameter, DTensor):
        mesh = parameter.device_mesh
        for dimension, placement in enumerate(parameter.placements):
            if placement.is_replicate():
                total = total / mesh.size(dimension)
    return total


def _local_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """In the parameter's layout: the gradient of a norm's weight, of this rank's positions only, is reduced first."""
    gradient = parameter.grad
    assert gradient is not None
    if not isinstance(gradient, DTensor) or not isinstance(parameter, DTensor):
        return gradient
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
        parameter.grad = gradient
    return gradient.to_local()
