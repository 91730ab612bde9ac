"""Spread a decoder over ranks by torch's own libraries, and make one training step of it.

Tensor parallel by DTensor with sequence parallel: between the blocks a rank holds its part of the positions. Pipeline
parallel by torch.distributed.pipelining (1F1B). Data parallel by fully_shard. Pipeline ranks send each other plain
tensors of known shapes, so that torch does not have to infer shapes in a first step.

In this order: the layout and the model, one step, a pipeline stage, gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

from flagperf_cases.decoder.layout import DecoderShape, Layout
from flagperf_cases.decoder.model import Decoder, initialise, scaled_std


@dataclass(frozen=True)
class Place:
    """Says where this rank is in the layout. `mesh` has the dimensions pp, dp and tp; None for a single process."""

    layout: Layout
    mesh: DeviceMesh | None
    pp_rank: int = 0
    dp_rank: int = 0
    tp_rank: int = 0

    @property
    def is_first_stage(self) -> bool:
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        return self.pp_rank == self.layout.pp - 1

    @property
    def counts(self) -> bool:
        """Return True on one rank of each replica, which counts its samples: the first one that has the loss."""
        return self.is_last_stage and self.tp_rank == 0

    def part(self, *names: str) -> DeviceMesh:
        assert self.mesh is not None
        return self.mesh[names if len(names) > 1 else names[0]]


def find_place(layout: Layout, device_type: str) -> Place:
    """Return the place of this rank. Every rank of the group calls this at the same time."""
    if layout.world_size == 1:
        return Place(layout, None)
    mesh = init_device_mesh(device_type, (layout.pp, layout.dp, layout.tp), mesh_dim_names=("pp", "dp", "tp"))
    pp_rank, dp_rank, tp_rank = mesh.get_coordinate() or (0, 0, 0)
    return Place(layout, mesh, pp_rank, dp_rank, tp_rank)


def build_model(
    shape: DecoderShape,
    place: Place,
    *,
    device: str,
    seed: int,
    std: float,
    recompute: bool = False,
    autocast: torch.dtype | None = None,
) -> Decoder:
    """Build this rank's part of the model, with initial weights as in Megatron."""
    model = build_on_meta(shape, place, recompute=recompute, autocast=autocast)
    initialise(model, seed, std, device, output_std=scaled_std(std, shape.layers))
    return model


def build_on_meta(
    shape: DecoderShape, place: Place, *, recompute: bool = False, autocast: torch.dtype | None = None
) -> Decoder:
    """Build this rank's part of the model on meta: no weight is allocated yet."""
    layers = place.layout.stage_layers(shape.layers)[place.pp_rank]
    with torch.device("meta"):
        model = Decoder(
            shape,
            layers,
            has_embedding=place.is_first_stage,
            has_head=place.is_last_stage,
            recompute=recompute,
            autocast=autocast,
        )
    if place.layout.tp > 1:
        split_tensors(model, place.part("tp"))
    if is_sharded(place.layout, has_autocast=autocast is not None):
        policy = MixedPrecisionPolicy(param_dtype=autocast, reduce_dtype=torch.float32)
        options: dict[str, Any] = {"mesh": place.part("dp"), "mp_policy": policy}
        for block in model.layers.values():  # in a pipeline, weights stay gathered between micro-batches
            fully_shard(block, **options, reshard_after_forward=place.layout.pp == 1)
        fully_shard(model, **options, reshard_after_forward=False)
    return model


def split_tensors(model: Decoder, mesh: DeviceMesh) -> None:
    """Make the model tensor parallel with sequence parallel. A rank's logits are those of its part of the
    vocabulary."""
    for block in model.layers.values():
        parallelize_module(block, mesh, _BLOCK_PLAN)
    if model.embed_tokens is not None:
        plan = {"embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))}
        parallelize_module(model, mesh, plan)
    if model.lm_head is not None:
        head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1))
        parallelize_module(model, mesh, {"norm": SequenceParallel(), "lm_head": head})
    model.tie()


_GATHERED = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
_BLOCK_PLAN: dict[str, Any] = {
    "input_layernorm": SequenceParallel(),
    "self_attn": _GATHERED,
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
    "post_attention_layernorm": SequenceParallel(),
    "mlp": _GATHERED,
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
}


def is_sharded(layout: Layout, has_autocast: bool) -> bool:
    """Return True if weights are sharded. fully_shard is also used for mixed precision without data parallelism,
    because it casts the weights once. Autocast alone would cast them for every micro-batch and keep each copy until its
    backward pass."""
    return layout.dp > 1 or (has_autocast and layout.world_size > 1)


# --- one step ---------------------------------------------------------------------------------------------------------


class Trainer:
    """Goes forward and backward through all micro-batches of a step; gradients are of the mean loss over the global
    batch.

    `inputs` and `labels` are [micro-batches x micro-batch size, sequence], the same on all ranks of a replica.
    """

    def __init__(self, model: Decoder, place: Place, *, micro_batch: int, num_micro_batches: int, device: str) -> None:
        self.model = model
        self.place = place
        self._num_micro_batches = num_micro_batches
        self._tied = TiedGradients(model, place)
        self._schedule: Schedule1F1B | None = None
        if place.layout.pp > 1:
            stage = _stage(model, place, micro_batch, device)
            self._schedule = Schedule1F1B(stage, num_micro_batches, loss_fn=self._loss, scale_grads=False)

    def backward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor | None:
        """Return the mean loss over this replica's samples, on the ranks of the last stage."""
        losses: list[torch.Tensor] = []
        with loss_parallel():
            if self._schedule is None:
                losses = self._accumulate(inputs, labels)
            else:
                given = (inputs,) if self.place.is_first_stage else ()
                targets: dict[str, Any] = {"target": labels, "losses": losses} if self.place.is_last_stage else {}
                self._schedule.step(*given, **targets, return_outputs=False)
        self._tied.add_up()
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else None

    def _accumulate(self, inputs: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        pairs = list(zip(inputs.chunk(self._num_micro_batches), labels.chunk(self._num_micro_batches), strict=True))
        for index, (ids, targets) in enumerate(pairs):
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(index == len(pairs) - 1)
            loss = self._loss(self.model(ids), targets)
            loss.backward()
            losses.append(loss.detach())
        return losses

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute a micro-batch's part of the mean loss; fully_shard takes the mean over data parallel ranks."""
        exact = logits.float()
        if self.place.layout.tp > 1:
            exact = DTensor.from_local(exact, self.place.part("tp"), [Shard(-1)], run_check=False)
        mean = cross_entropy(exact.flatten(0, 1), labels.flatten())
        whole = mean.full_tensor() if isinstance(mean, DTensor) else mean
        return whole / self._num_micro_batches


# --- pipeline ---------------------------------------------------------------------------------------------------------


def _stage(model: Decoder, place: Place, micro_batch: int, device: str) -> BufferReusingStage:
    shape, layout = model.shape, place.layout
    computed: dict[str, Any] = {"dtype": model.autocast or torch.float32, "device": "meta", "requires_grad": True}
    tokens = torch.empty(micro_batch, shape.sequence, dtype=torch.long, device="meta")
    states = torch.empty(micro_batch, shape.sequence // layout.tp, shape.width, **computed)
    logits = torch.empty(micro_batch, shape.sequence, shape.vocabulary // layout.tp, **computed)
    return BufferReusingStage(
        model,
        place.pp_rank,
        layout.pp,
        torch.device(device),
        group=place.part("pp").get_group(),
        input_args=(tokens if place.is_first_stage else states,),
        output_args=(logits if place.is_last_stage else states,),
    )


class BufferReusingStage(PipelineStage):  # type: ignore[misc]
    """torch's stage allocates a receive buffer for every micro-batch of a step, forward and backward: 32 GiB at the
    published TP4PP8 with 1024 micro-batches. 1F1B has at most `in_flight` of them between forward and backward, and
    receives a gradient only after it has used the previous one, so buffers are reused in turn.

    A torch version without these methods never calls them, and uses its own buffers.
    """

    @property
    def in_flight(self) -> int:
        return int(self.num_stages - self.stage_index)

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(min(num_microbatches, self.in_flight), has_backward)
        _reuse_in_turn(self.args_recv_info, num_microbatches)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(1)
        _reuse_in_turn(self.grad_recv_info, num_microbatches)
        self.chunks = num_microbatches


def _reuse_in_turn(buffers: dict[int, Any], num_microbatches: int) -> None:
    num_buffers = len(buffers)
    buffers.update({index: buffers[index % num_buffers] for index in range(num_buffers, num_microbatches)})


# --- gradients --------------------------------------------------------------------------------------------------------


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
    """Return the norm of all gradients of the model, the same on every rank."""
    is_copy = model.shape.tied and not place.is_first_stage  # of the first stage's embedding
    owned = [value for name, value in model.named_parameters() if not (is_copy and name == "lm_head.weight")]
    squares = [_square_sum(parameter) for parameter in owned if parameter.grad is not None]
    device = next(model.parameters()).device
    total = torch.stack(squares).sum() if squares else torch.zeros((), device=device)
    if place.layout.world_size > 1:
        dist.all_reduce(total)
    return total.sqrt()


def clip(model: Decoder, norm: torch.Tensor, max_norm: float) -> None:
    """Do what torch.nn.utils.clip_grad_norm_ does, without waiting for the device."""
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in model.parameters():
        if parameter.grad is not None:
            _local_gradient(parameter).mul_(factor)


def _square_sum(parameter: nn.Parameter) -> torch.Tensor:
    """Use sum(), which adds pairwise: on a CPU torch 2.13's vector_norm adds sequentially, and for the 235 M equal
    numbers of a published feed-forward weight its result is 24 % too small."""
    total = _local_gradient(parameter).float().square().sum()
    if isinstance(parameter, DTensor):
        mesh = parameter.device_mesh
        for dimension, placement in enumerate(parameter.placements):
            if placement.is_replicate():
                total = total / mesh.size(dimension)
    return total


def _local_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """Return the gradient in the parameter's layout: that of a norm's weight, of this rank's positions only, is reduced
    first."""
    gradient = parameter.grad
    assert gradient is not None
    if not isinstance(gradient, DTensor) or not isinstance(parameter, DTensor):
        return gradient
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
        parameter.grad = gradient
    return gradient.to_local()
