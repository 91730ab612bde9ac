"""The device's collective backend. It works through gloo on the CPU tensors inside.

It is registered for the device alone: as with a vendor's library, a collective on a tensor of the host raises. Each
group of the device has a hidden group of the host, to which the collectives of its tensors go.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

_host_groups: dict[Any, tuple[dist.ProcessGroup, str]] = {}
"""The hidden group and its name, by the backend that torch holds for the device's group."""


def register_collectives(name: str, torch_type: str) -> None:
    def create(store: dist.Store, rank: int, world_size: int, timeout: timedelta) -> Any:
        backend = dist.ProcessGroupGloo(store, rank, world_size, timeout)
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        label = f"{name} through gloo {len(_host_groups)}"
        group._set_group_name(label)
        c10d._register_process_group(label, group)
        _host_groups[backend] = group, label
        return backend

    dist.Backend.register_backend(name, create, devices=[torch_type])


def within_host_groups(args: Any, torch_type: str) -> Any:
    """Return the arguments of a collective with the hidden group in place of the device's. Groups come as objects, as
    objects of TorchScript, or by name."""
    device = torch.device(torch_type)
    inside = []
    for value in args:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
            value = _host_groups[dist.ProcessGroup.unbox(value)._get_backend(device)][0].boxed()
        elif isinstance(value, dist.ProcessGroup):
            value = _host_groups[value._get_backend(device)][0]
        elif isinstance(value, str):
            with contextlib.suppress(RuntimeError, ValueError):  # another word, such as the reduction's
                group = c10d._resolve_process_group(value)
                value = _host_groups[group._get_backend(device)][1]
        inside.append(value)
    return tuple(inside)


def with_device_result(results: Any) -> Any:
    """Return the results of an all-reduce with a future that holds the device's tensors. DistributedDataParallel takes
    the gradients from there; it would get the tensors inside, and copy them from the host."""
    tensors, boxed = results
    future = torch.futures.Future(devices=[tensors[0].device])
    work = dist.Work.unbox(boxed)
    work.get_future().add_done_callback(lambda _: future.set_result(list(tensors)))
    made: Any = getattr(c10d, "_create_work_from_future")(future)  # noqa: B009  torch's stubs lack it
    return tensors, made.boxed()
