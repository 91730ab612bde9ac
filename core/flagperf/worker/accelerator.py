"""The only place that sets up accelerate.

Where its environment does not fit, accelerate silently runs N separate trainings, each with exit code 0: as rank 0 of
1, or as rank n of N without exchanging gradients. An optimizer that was made before its model moved to the device may
hold the weights of before, and silently trains nothing. So all of that is checked here.

accelerate knows device types by a list of its own. A type that is not on it is taught: device, distributed type and
gradient scaler are set here, and the cases see no difference.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate import Accelerator, DistributedType, PartialState
from torch.amp.grad_scaler import OptState
from torch.nn.parallel import DistributedDataParallel

from flagperf.api import DeviceBackend, Precision
from flagperf.errors import Unsupported

_MIXED = {"float16": "fp16", "bfloat16": "bf16"}


class CheckedAccelerator(Accelerator):  # type: ignore[misc]
    """An Accelerator whose results are checked to be prepared: gradients are exchanged, optimizers train the model."""

    def prepare(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super().prepare(*args, **kwargs)
        if not self.distributed_type.value.startswith(("NO", "MULTI_")):
            return prepared  # an engine that a case asked for, such as FSDP, wraps models and weights in its own ways
        for each in prepared if isinstance(prepared, tuple) else (prepared,):
            if isinstance(each, torch.nn.Module):
                model: Any = getattr(each, "_orig_mod", each)  # of a compiled model
                is_trained = any(parameter.requires_grad for parameter in model.parameters())
                if self.num_processes > 1 and is_trained and not isinstance(model, DistributedDataParallel):
                    found = f"accelerate left a model of {self.num_processes} processes as {type(model).__name__}"
                    raise RuntimeError(f"{found}: its gradients would not be exchanged")
            if isinstance(each, torch.optim.Optimizer):
                held = {id(parameter) for known in self._models for parameter in known.parameters()}
                trained = {id(parameter) for group in each.param_groups for parameter in group["params"]}
                if held and not trained & held:
                    raise RuntimeError(
                        "the optimizer holds none of the model's weights: moving a model to a device may replace them; "
                        "call accelerator.prepare(model) first, then make the optimizer from its parameters"
                    )
        return prepared


def make_accelerator(
    backend: DeviceBackend, precision: Precision, world_size: int, device: str, **arguments: Any
) -> Accelerator:
    use_cpu = backend.torch_type == "cpu"
    os.environ["ACCELERATE_USE_CPU"] = str(use_cpu).lower()
    if world_size == 1 and "LOCAL_RANK" in os.environ and not torch.distributed.is_initialized():
        # accelerate makes a group also for one rank, with a store that listens on every address: this one does not.
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(backend.collective_backend, store=store, rank=0, world_size=1)
    # Its property is asked without an object, which would already choose a device.
    is_taught = not use_cpu and PartialState.default_device.fget(None).type != backend.torch_type
    if is_taught:
        os.environ["ACCELERATE_TORCH_DEVICE"] = device
        state = PartialState(backend=backend.collective_backend)
        if world_size > 1:
            # What it does for this type fits any: gradients go through the group that exists, and no device is chosen.
            state.distributed_type = DistributedType.MULTI_CPU
    mixed = _MIXED[precision.autocast] if precision.autocast else "no"
    try:
        if is_taught and mixed == "fp16":
            accelerator = _with_float16(CheckedAccelerator(mixed_precision="no", **arguments), device)
        else:
            accelerator = CheckedAccelerator(cpu=use_cpu, mixed_precision=mixed, **arguments)
    except ValueError as error:
        if precision.autocast and "mixed precision requires" in str(error):
            raise Unsupported(f"accelerate cannot compute in {precision.name} on {device}: {error}") from None
        raise
    if accelerator.num_processes != world_size:
        raise RuntimeError(f"accelerate sees {accelerator.num_processes} processes, but the job has {world_size}")
    if precision.autocast and not accelerator.native_amp:
        raise Unsupported(f"accelerate ignores {precision.name} on {device}: it would compute in {precision.storage}")
    _check_device(accelerator.device, backend.torch_type, device)
    return accelerator


def _with_float16(accelerator: Accelerator, device: str) -> Accelerator:
    """Add float16, which accelerate refuses for types that are not on its list."""
    if not hasattr(torch.amp, "GradScaler"):
        raise Unsupported(f"amp-fp16 on {device} needs torch 2.3 or later; this is {torch.__version__}")

    values = accelerator.scaler_handler.to_kwargs() if accelerator.scaler_handler is not None else {}
    accelerator.scaler = GradientScaler(torch.device(device).type, **values)
    accelerator.state._mixed_precision = "fp16"
    accelerator.native_amp = True
    return accelerator


def _check_device(chosen: torch.device, torch_type: str, device: str) -> None:
    expected = torch.device(device)
    # Without an index it is the current device, which is the one that the backend activated.
    if chosen.type != torch_type or (None not in (chosen.index, expected.index) and chosen != expected):
        raise RuntimeError(f"accelerate chose {chosen}, but the job runs on {device}")


# Dynamic loss scaling for float16, on any device.


class GradientScaler(torch.amp.GradScaler):  # type: ignore[misc]
    """torch's own takes the reciprocal of the scale in float64, which some cards do not have. Scales are powers of two,
    whose reciprocals are exact in float32 as well."""

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if not self.is_enabled():
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is not OptState.READY:
            raise RuntimeError("unscale_() was called after unscale_() or step() of the same step")
        found_inf = torch.zeros((), dtype=torch.float32, device=self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, self._scale.reciprocal(), found_inf, False)
        state["stage"] = OptState.UNSCALED
