"""The only place that sets up accelerate.

If its environment is wrong, accelerate silently runs N separate trainings, each as rank 0 of 1 and with exit code 0.
So the number of processes is checked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from flagperf.api import DeviceBackend, Precision
from flagperf.errors import Unsupported

if TYPE_CHECKING:
    from accelerate import Accelerator

_MIXED = {"float16": "fp16", "bfloat16": "bf16"}


def make_accelerator(
    backend: DeviceBackend, precision: Precision, world_size: int, device: str, **arguments: Any
) -> Accelerator:
    use_cpu = backend.torch_type == "cpu"
    if use_cpu:
        os.environ["ACCELERATE_USE_CPU"] = "true"
    from accelerate import Accelerator

    mixed = _MIXED[precision.autocast] if precision.autocast else "no"
    accelerator = Accelerator(cpu=use_cpu, mixed_precision=mixed, **arguments)
    if accelerator.num_processes != world_size:
        raise RuntimeError(f"accelerate sees {accelerator.num_processes} processes, but the job has {world_size}")
    if precision.autocast and not accelerator.native_amp:
        raise Unsupported(f"accelerate ignores {precision.name} on {device}: it would compute in {precision.storage}")
    if accelerator.device.type != backend.torch_type:
        raise RuntimeError(f"accelerate chose {accelerator.device}, but the job runs on {device}")
    return accelerator
