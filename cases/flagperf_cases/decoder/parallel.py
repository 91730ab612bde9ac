"""A decoder spread over ranks by torch's own libraries, and one training step of it.

Tensor parallel by DTensor with sequence parallel: between the blocks a rank holds its part of the positions. Pipeline
parallel by torch.distributed.pipelining (1F1B). Data parallel by fully_shard. Pipeline ranks send each other plain
tensors of known shapes, so that torch does not have to infer shapes in a first step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import Schedule1F1B
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

from flagperf_cases.decoder.gradients import TiedGradients
from flagperf_cases.decoder.initial_weights import initialise, scaled_std
from flagperf_cases.decoder.layout import Layout
from flagperf_cases.decoder.model import Decoder
from flagperf_cases.decoder.pipeline_stage import BufferReusingStage
from flagperf_cases.decoder.shape import DecoderShape


@dataclass(frozen=True)
class Place:
    """Where this rank is in the layout. `mesh` has the dimensions pp, dp and tp; None for a single process."""

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
        """True on one rank of each replica, which counts its samples: the first one that has the loss."""
        return self.is_last_stage and self.tp_rank == 0

    def part(self, *names: str) -> DeviceMesh:
        assert self.mesh is not None
        return self.mesh[names if len(names) > 1 else names[0]]


def find_place(layout: Layout, device_type: str) -> Place:
    """Every rank of the group calls this at the same time."""
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
    """This rank's part of the model, with initial weights as in Megatron."""
    model = build_on_meta(shape, place, recompute=recompute, autocast=autocast)
    initialise(model, seed, std, device, output_std=scaled_std(std, shape.layers))
    return model


def build_on_meta(
    shape: DecoderShape, place: Place, *, recompute: bool = False, autocast: torch.dtype | None = None
) -> Decoder:
    """This rank's part of the model on meta: no weight is allocated yet."""
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
        _split_data(model, place, autocast)
    return model


def split_tensors(model: Decoder, mesh: DeviceMesh) -> None:
    """Tensor parallel with sequence parallel. A rank's logits are those of its part of the vocabulary."""
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
    """fully_shard is also used for mixed precision without data parallelism, because it casts the weights once.
    Autocast alone would cast them for every micro-batch and keep each copy until its backward pass."""
    return layout.dp > 1 or (has_autocast and layout.world_size > 1)


def _split_data(model: Decoder, place: Place, autocast: torch.dtype | None) -> None:
    """In a pipeline the weights stay gathered between micro-batches."""
    policy = MixedPrecisionPolicy(param_dtype=autocast, reduce_dtype=torch.float32)
    options: dict[str, Any] = {"mesh": place.part("dp"), "mp_policy": policy}
    for block in model.layers.values():
        fully_shard(block, **options, reshard_after_forward=place.layout.pp == 1)
    fully_shard(model, **options, reshard_after_forward=False)


class Trainer:
    """Forward and backward of all micro-batches of a step; gradients of the mean loss over the global batch.

    `inputs` and `labels` are [micro-batches x micro-batch size, sequence], the same on all ranks of a replica.
    """

    def __init__(self, model: Decoder, place: Place, *, micro_batch: int, num_micro_batches: int, device: str) -> None:
        self.model = model
        self.place = place
        self._num_micro_batches = num_micro_batches
        self._loss = _loss_function(place, num_micro_batches)
        self._tied = TiedGradients(model, place)
        self._schedule: Schedule1F1B | None = None
        if place.layout.pp > 1:
            stage = _stage(model, place, micro_batch, device)
            self._schedule = Schedule1F1B(stage, num_micro_batches, loss_fn=self._loss, scale_grads=False)

    def backward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor | None:
        """The mean loss over this replica's samples, on the ranks of the last stage."""
        with loss_parallel():
            losses = self._accumulate(inputs, labels) if self._schedule is None else self._pipeline(inputs, labels)
        self._tied.add_up()
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else None

    def _pipeline(self, inputs: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        assert self._schedule is not None
        losses: list[torch.Tensor] = []
        given = (inputs,) if self.place.is_first_stage else ()
        targets: dict[str, Any] = {"target": labels, "losses": losses} if self.place.is_last_stage else {}
        self._schedule.step(*given, **targets, return_outputs=False)
        return losses

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


def _loss_function(place: Place, num_micro_batches: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A micro-batch's part of the mean loss; fully_shard takes the mean over data parallel ranks."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        exact = logits.float()
        if place.layout.tp > 1:
            exact = DTensor.from_local(exact, place.part("tp"), [Shard(-1)], run_check=False)
        mean = cross_entropy(exact.flatten(0, 1), labels.flatten())
        whole = mean.full_tensor() if isinstance(mean, DTensor) else mean
        return whole / num_micro_batches

    return loss


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


def gather_parameters(model: Decoder) -> Sequence[tuple[str, torch.Tensor]]:
    """Gathered over tensor and data parallel ranks, by full name. For tests and small models."""
    return [
        (name, value.full_tensor() if isinstance(value, DTensor) else value.detach())
        for name, value in model.named_parameters()
    ]
