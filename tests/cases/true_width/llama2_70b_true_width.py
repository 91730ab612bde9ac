"""One block of the published model on one rank, forward and back, in a process of its own.

The rank is that of stage 40 out of 80, with no other rank there: what it takes from its neighbours is made up here.
"""

from __future__ import annotations

from typing import Any

import torch
from bf16_units import Bf16Units
from case_harness import CaseHarness
from torch.distributed.device_mesh import init_device_mesh

from flagperf.api import precision
from flagperf_cases.decoder.layout import DecoderShape, Layout, shape_of
from flagperf_cases.decoder.model import Decoder
from flagperf_cases.decoder.parallel import Place, build_model

CASE = CaseHarness("llama2_70b")

SEQUENCE = 96
KNOWN = 32
"""The loss is of the first positions alone. Later ones do not reach them, forward or back, so that fp32 need not
compute more than these."""
COMPARED = ("input_layernorm", "self_attn.k_proj", "self_attn.o_proj", "post_attention_layernorm")


def forward_and_back(profile: str) -> dict[str, Any]:
    """In a process group of one."""
    config = CASE.values(profile, devices=32)
    mesh = init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("pp", "dp", "tp"))
    stage = build_model(
        shape_of(config["model"]),
        Place(Layout(pp=80), mesh, pp_rank=40),
        device="cpu",
        seed=config["training"]["seed"],
        std=config["model"]["initial_std"],
        autocast=getattr(torch, precision(config["precision"]).autocast or ""),
    )
    states, gradient = made_up_neighbours(stage.shape)
    with Bf16Units() as units:
        output = stage(states)
        output.backward(gradient)
    return found(stage, states, output, gradient) | {"products": units.num_products}


def made_up_neighbours(shape: DecoderShape) -> tuple[torch.Tensor, torch.Tensor]:
    """States of the stage before, and the gradient that the stage after sends back."""
    generator = torch.Generator().manual_seed(3)
    states, gradient = torch.randn(2, 1, SEQUENCE, shape.width, generator=generator).bfloat16()
    gradient[:, KNOWN:] = 0
    return states.requires_grad_(), gradient


def found(stage: Decoder, states: Any, output: torch.Tensor, gradient: torch.Tensor) -> dict[str, Any]:
    parameters = dict(stage.named_parameters())
    gradients = {name: value.grad.to_local() for name, value in parameters.items()}
    weights = {name: value.detach().to_local() for name, value in parameters.items()}
    return {
        "parameters": sum(value.numel() for value in parameters.values()),
        "output": [str(output.dtype), list(output.shape), bool(output.isfinite().all())],
        "states": [str(states.grad.dtype), list(states.grad.shape), bool(states.grad.isfinite().all())],
        "gradient types": sorted({str(value.dtype) for value in gradients.values()}),
        "gradient shapes": all(gradients[name].shape == weights[name].shape for name in weights),
        "gradients finite": all(bool(value.sum().isfinite()) for value in gradients.values()),
        "from later positions": float(states.grad[:, KNOWN:].abs().max()),
        "errors": errors(stage.shape, weights, gradients, states, output, gradient),
    }


def errors(
    shape: DecoderShape, weights: dict[str, Any], gradients: dict[str, Any], states: Any, output: Any, gradient: Any
) -> dict[str, float]:
    """Relative, against fp32 on the same weights."""
    with torch.device("meta"):
        exact = Decoder(shape, [40], has_embedding=False, has_head=False)
    exact.load_state_dict(weights, assign=True)
    exact_states = states.detach()[:, :KNOWN].float().requires_grad_()
    exact_output = exact(exact_states)
    names = [f"layers.40.{name}.weight" for name in COMPARED]
    wanted = [exact_states, *(exact.get_parameter(name).requires_grad_() for name in names)]
    by_states, *by_weights = torch.autograd.grad(exact_output, wanted, gradient[:, :KNOWN].float())
    pairs = {"output": (output[:, :KNOWN], exact_output), "states": (states.grad[:, :KNOWN], by_states)}
    pairs |= {name: (gradients[name], value) for name, value in zip(names, by_weights, strict=True)}
    return {name: _relative_error(one.detach().float(), two.detach()) for name, (one, two) in pairs.items()}


def _relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).square().sum().sqrt() / exact.square().sum().sqrt())
