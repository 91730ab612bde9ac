"""Initial weights that are the same in every layout and for every vendor.

Each parameter is drawn on the host in fp32 from its own generator, seeded by (seed, full name), one at a time, and a
rank keeps its slice, so that no rank ever holds the whole model. (DTensor's own random initialisation gives every shard
the same numbers on a CPU mesh, with only a warning.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from flagperf_cases.decoder.model import Decoder, RmsNorm

OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
"""The weights of a block whose results are added to the hidden states."""


def initialise(model: Decoder, seed: int, std: float, device: str, *, output_std: float | None = None) -> None:
    """Allocates the parameters of a model that was built on meta, and draws their values. `output_std` is that of
    OUTPUTS, if it differs."""
    norms = {name for name, module in model.named_modules() if isinstance(module, RmsNorm)}

    def drawn(name: str, parameter: nn.Parameter) -> torch.Tensor:
        own_std = output_std if output_std is not None and name.endswith(OUTPUTS) else std
        return _drawn(model, name, parameter, seed, own_std, norms)

    fill(model, device, drawn)


def scaled_std(std: float, num_layers: int) -> float:
    """Megatron's for OUTPUTS: every block adds two of them, so that hidden states keep their size in deep models."""
    return std / math.sqrt(2 * num_layers)


def fill(model: Decoder, device: str, full: Callable[[str, nn.Parameter], torch.Tensor]) -> None:
    """Allocates a model that was built on meta, and copies this rank's slice of `full(name, parameter)` into each
    parameter, one at a time."""
    model.to_empty(device=device)
    model.tie()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _local(parameter).copy_(_slice(parameter, full(name, parameter)))


def seed_of(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def seed_name(model: Decoder, name: str) -> str:
    """A tied head on another stage than the embedding gets the embedding's values."""
    return "embed_tokens.weight" if model.shape.tied and name == "lm_head.weight" else name


def _drawn(model: Decoder, name: str, parameter: nn.Parameter, seed: int, std: float, norms: set[str]) -> torch.Tensor:
    if name.removesuffix(".weight") in norms:
        return torch.ones(parameter.shape)
    generator = torch.Generator().manual_seed(seed_of(seed, seed_name(model, name)))
    return torch.empty(parameter.shape).normal_(0.0, std, generator=generator)


def _slice(parameter: nn.Parameter, full: torch.Tensor) -> torch.Tensor:
    """This rank's part. Tensor parallelism, the mesh's last dimension, cuts first; fully_shard cuts the result."""
    if not isinstance(parameter, DTensor):
        return full
    mesh, part = parameter.device_mesh, full
    for dimension in reversed(range(mesh.ndim)):
        placement = parameter.placements[dimension]
        if placement.is_replicate():
            continue
        chunks = part.chunk(mesh.size(dimension), placement.dim)
        index = mesh.get_local_rank(dimension)
        part = chunks[index] if index < len(chunks) else part.narrow(placement.dim, 0, 0)
    return part


def _local(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
