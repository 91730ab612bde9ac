"""Build a Llama-family decoder in plain torch (RMSNorm, rotary positions, grouped-query attention, SwiGLU), with
initial weights that are the same in every layout and for every vendor.

Parameters have the names of Hugging Face's Llama without the leading `model.`. A pipeline stage is a Decoder with some
of the layers, which keep their numbers, so that a parameter has the same name in every layout.

Under tensor parallelism parallel.py decides the layout of the sub-modules' inputs and outputs; sizes that depend on it
are read from the tensors here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from flagperf_cases.decoder.layout import DecoderShape


class Decoder(nn.Module):  # type: ignore[misc]
    """Turns token ids into logits; a middle stage of a pipeline takes and returns hidden states instead."""

    def __init__(
        self,
        shape: DecoderShape,
        layers: Sequence[int] | None = None,
        *,
        has_embedding: bool = True,
        has_head: bool = True,
        recompute: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = recompute
        self.autocast = autocast
        rotary = Rotary(shape.head_size, shape.rope_base)
        numbers = range(shape.layers) if layers is None else layers
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width) if has_embedding else None
        self.layers = nn.ModuleDict({str(number): Block(shape, rotary) for number in numbers})
        self.norm = RmsNorm(shape.width, shape.norm_eps) if has_head else None
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False) if has_head else None
        self.tie()

    def tie(self) -> None:
        """Make embedding and head one tensor, if the model is tied and both are on this stage. Call it again after
        either is replaced."""
        if self.shape.tied and self.embed_tokens is not None and self.lm_head is not None:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.autocast is None:  # not autocast(enabled=False): some devices know no autocast at all
            return self._forward(states)
        with torch.autocast(states.device.type, self.autocast):
            return self._forward(states)

    def _forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.embed_tokens is not None:
            states = self.embed_tokens(states)
            states = states.to(self.autocast or states.dtype)  # ranks send each other the compute type
        for block in self.layers.values():
            if self.recompute and torch.is_grad_enabled():
                states = checkpoint(block, states, use_reentrant=False)
            else:
                states = block(states)
        if self.norm is not None and self.lm_head is not None:
            states = self.lm_head(self.norm(states))
        return states


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: DecoderShape, rotary: Rotary) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.width, shape.norm_eps)
        self.self_attn = Attention(shape, rotary)
        self.post_attention_layernorm = RmsNorm(shape.width, shape.norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.self_attn(self.input_layernorm(states))
        output: torch.Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return output


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: DecoderShape, rotary: Rotary) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.is_grouped = shape.kv_heads != shape.heads
        self.rotary = rotary
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        # From [batch, length, heads of this rank x size] to [batch, heads, length, size].
        query, key, value = (
            proj(states).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = self.rotary.turn(query), self.rotary.turn(key)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.is_grouped)
        output: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output


class FeedForward(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(silu(self.gate_proj(states)) * self.up_proj(states))
        return output


class RmsNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        exact = states.float()
        normed = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * normed).to(states.dtype)


class Rotary:
    """Rotates the pairs (i, i + half) by position. Has no buffers, because those of a model built on meta would stay
    uninitialised."""

    def __init__(self, head_size: int, base: float) -> None:
        self._head_size = head_size
        self._base = base
        self._made: tuple[torch.Tensor, torch.Tensor] | None = None

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        """Rotate [batch, heads, length, size]; computed in fp32, returned in the input's type."""
        length, device = heads.shape[-2], heads.device
        if self._made is None or self._made[0].shape[0] < length or self._made[0].device != device:
            exponents = torch.arange(0, self._head_size, 2, device=device).float() / self._head_size
            angles = torch.outer(torch.arange(length, device=device).float(), 1.0 / self._base**exponents)
            self._made = angles.cos(), angles.sin()
        cos, sin = (each[:length] for each in self._made)
        first, second = heads.float().chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(heads.dtype)


# --- initial weights --------------------------------------------------------------------------------------------------

OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
"""The weights of a block whose results are added to the hidden states."""


def initialise(model: Decoder, seed: int, std: float, device: str, *, output_std: float | None = None) -> None:
    """Allocate the parameters of a model that was built on meta, and draw their values. `output_std` is that of
    OUTPUTS, if it differs."""
    norms = {name for name, module in model.named_modules() if isinstance(module, RmsNorm)}

    def drawn(name: str, parameter: nn.Parameter) -> torch.Tensor:
        if name.removesuffix(".weight") in norms:
            return torch.ones(parameter.shape)
        own_std = output_std if output_std is not None and name.endswith(OUTPUTS) else std
        digest = hashlib.sha256(f"{seed} {seed_name(model, name)}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.empty(parameter.shape).normal_(0.0, own_std, generator=generator)

    fill(model, device, drawn)


def scaled_std(std: float, num_layers: int) -> float:
    """Return Megatron's for OUTPUTS: every block adds two of them, so that hidden states keep their size in deep
    models."""
    return std / math.sqrt(2 * num_layers)


def fill(model: Decoder, device: str, full: Callable[[str, nn.Parameter], torch.Tensor]) -> None:
    """Allocate a model that was built on meta, and copy this rank's slice of `full(name, parameter)` into each
    parameter, one at a time."""
    model.to_empty(device=device)
    model.tie()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            local.copy_(_slice(parameter, full(name, parameter)))


def seed_name(model: Decoder, name: str) -> str:
    """Return whose values a weight gets: a tied head on another stage than the embedding gets the embedding's."""
    return "embed_tokens.weight" if model.shape.tied and name == "lm_head.weight" else name


def _slice(parameter: nn.Parameter, full: torch.Tensor) -> torch.Tensor:
    """Return this rank's part. Tensor parallelism, the mesh's last dimension, cuts first; fully_shard cuts the
    result."""
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
