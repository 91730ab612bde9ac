"""A torch device written in Python, for tests without cards: a type of its own that is not the CPU.

`install` makes `torch.<type>` and `torch.device("<type>")` work in this process, once and under one name. Tensors there
hold CPU tensors and compute on the CPU, with the CPU's results; everything else is as on a card. A tensor of the host
among a card's raises. Bytes are counted, and there is a limit. The host waits only where it has to, and each wait is
counted. A collective backend of its own goes through gloo. FLAGPERF_TEST_DEVICE asks for faults, see options.py.

It needs an entry point of torch that is not public and that torch 2.13 has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flagperf.errors import Unsupported
from flagperf.testing.torch_device.options import read_options

if TYPE_CHECKING:
    from flagperf.testing.suite import SimulatedCard
    from flagperf.testing.torch_device.memory import Report

ENTRY_POINT = "_setup_privateuseone_for_python_backend"
_kept: list[Any] = []
"""Registrations of operators end with their objects."""


def install(
    torch_type: str, collective_backend: str, cards: Sequence[SimulatedCard], report: Report | None = None
) -> None:
    """Install the device. `cards` are those that this process sees, in visible order. `report` is told what the process
    uses of each."""
    import torch
    from torch.utils import backend_registration

    if not hasattr(backend_registration, ENTRY_POINT):
        raise Unsupported(f"this torch ({torch.__version__}) cannot have a device written in Python; torch 2.13 can")
    from flagperf.testing.torch_device.collectives import register_collectives
    from flagperf.testing.torch_device.device import Device
    from flagperf.testing.torch_device.functions import patch_functions, patch_pinning
    from flagperf.testing.torch_device.kernels import register_attention, register_autocast
    from flagperf.testing.torch_device.module import DeviceModule

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    card_bytes = [card.memory_bytes for card in cards]
    device = Device(torch_type, card_bytes, report or (lambda *_: None), read_options(), local_rank)
    module = DeviceModule(device, [card_properties(card) for card in cards])
    getattr(backend_registration, ENTRY_POINT)(torch_type, module)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda operator, *args, **kwargs: device.run(operator, args, kwargs), "PrivateUse1")
    _kept.extend([library, register_attention(), *register_autocast(torch_type)])
    patch_functions(torch_type)
    if device.options.pinned:
        patch_pinning()
    register_collectives(collective_backend, torch_type)
    # Autograd has one thread per card and takes their number from torch's own guard, which says 1.
    torch.autograd.set_multithreading_enabled(False)


def card_properties(card: SimulatedCard) -> SimpleNamespace:
    """Return torch's properties of a card. They have only those identities that this vendor's torch reports."""
    properties: dict[str, Any] = {"name": "simulated card", "total_memory": card.memory_bytes}
    if card.uuid:
        properties["uuid"] = card.uuid.partition("-")[2] or card.uuid
    if card.pci_address:
        domain, bus, place = card.pci_address.split(":")
        numbers = (int(domain, 16), int(bus, 16), int(place.split(".")[0], 16))
        properties |= dict(zip(("pci_domain_id", "pci_bus_id", "pci_device_id"), numbers, strict=True))
    return SimpleNamespace(**properties)
