"""The worker's side of simulated cards: the adapter's own code, on a torch device that is not the CPU.

The device is that of torch_device, under a type of its own: no build of torch lets another one be called like a
vendor's. Its cards are those that the test laid out, narrowed by the vendor's visibility variables, and what it
allocates is added to the memory that the vendor's fake tool reports.

A torch that cannot have such a device (before 2.13) computes on the CPU. Then there is neither an allocator nor memory
that moves with it, and the rank's log says so.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec

from flagperf.api import Activation, Device, DeviceBackend, Machine, Precision, Presence
from flagperf.kit import TorchDeviceBackend
from flagperf.testing.machine_folder import add_use, write_memory
from flagperf.testing.suite import CARDS, MEMORY, SimulatedCard
from flagperf.testing.torch_device import ENTRY_POINT, card_properties, install
from flagperf.testing.torch_device.options import Options

TORCH_TYPE = "simulated"
COLLECTIVES = "simulated_collectives"
UNKNOWN_BYTES = 64 << 30
"""Memory of a card that does not say how much it has."""


def simulated_backend(backend: DeviceBackend) -> DeviceBackend:
    if not isinstance(backend, TorchDeviceBackend):
        return CpuBackend()
    if not torch_can_have_devices():
        print("torch has no device written in Python here (torch 2.13 can): simulated on the CPU", file=sys.stderr)
        return CpuBackend()
    attributes = {
        "vendor_type": backend.torch_type,
        "import_first": tuple(name for name in backend.import_first if is_installed(name)),
    }
    made = copy.copy(backend)
    made.__class__ = type(f"Simulated{type(backend).__name__}", (_OnTestDevice, type(backend)), attributes)
    return made


def is_installed(module: str) -> bool:
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def torch_can_have_devices() -> bool:
    """Search torch's source: importing it would start its threads before this process is bound to its CPUs."""
    found = importlib.util.find_spec("torch")
    folders = found.submodule_search_locations or [] if found else []
    sources = [Path(folder) / "utils" / "backend_registration.py" for folder in folders]
    return any(path.is_file() and ENTRY_POINT in path.read_text() for path in sources)


class _OnTestDevice(TorchDeviceBackend):
    """The base before the adapter's class. It replaces the words that name torch's device, and leaves all else to the
    adapter. While that works, the device's module also stands where the vendor's would be."""

    torch_type = TORCH_TYPE
    collective_backend = COLLECTIVES
    vendor_type: ClassVar[str]

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        import torch

        if CARDS in os.environ:
            cards = laid_out_cards(torch, os.environ)
        else:  # without a test, as the adapter found them
            cards = [
                SimulatedCard(each.id, each.memory_bytes or UNKNOWN_BYTES, each.uuid, each.pci_address)
                for each in devices
            ]
        visible = visible_cards(cards, self.visibility_variables, os.environ)

        def report(index: int, used_bytes: int) -> None:
            if MEMORY in os.environ:
                add_use(Path(os.environ[MEMORY]), visible[index], used_bytes)

        install(TORCH_TYPE, COLLECTIVES, [cards[index] for index in visible], report)
        with self._as_vendors():
            activation = super().activate(local_rank, num_threads, devices)
            unknown = []
            for name in self.tf32_switches:
                try:
                    getattr(*self._switch(name))
                except (ImportError, AttributeError):  # one of the vendor's own torch or package
                    unknown.append(name)
        type(self).tf32_switches = tuple(name for name in self.tf32_switches if name not in unknown)
        if unknown:
            print(f"simulated cards: left alone, as this torch has no {', '.join(unknown)}", file=sys.stderr)
        return activation

    def set_precision(self, precision: Precision) -> None:
        with self._as_vendors():
            super().set_precision(precision)

    def framework_state(self) -> dict[str, Any]:
        with self._as_vendors():
            return super().framework_state()

    @contextlib.contextmanager
    def _as_vendors(self) -> Iterator[None]:
        """Put the module there for a moment. For good, torch and accelerate would take this for the vendor's build."""
        import torch

        own = getattr(torch, self.vendor_type, None)
        setattr(torch, self.vendor_type, self._module)
        try:
            yield
        finally:
            setattr(torch, self.vendor_type, own) if own is not None else delattr(torch, self.vendor_type)


def laid_out_cards(torch: Any, environ: Mapping[str, str]) -> list[SimulatedCard]:
    """Return the cards that a test laid out, and give torch the attributes of its version that go with them."""
    described = json.loads(Path(environ[CARDS]).read_text())
    for name, value in described["version"].items():
        setattr(torch.version, name, value)
    return msgspec.convert(described["cards"], list[SimulatedCard])


def visible_cards(cards: Sequence[SimulatedCard], variables: Sequence[str], environ: Mapping[str, str]) -> list[int]:
    """Return physical indices. The strictest of the variables counts, as where one library sits on another."""
    visible = list(range(len(cards)))
    for name in variables:
        if name in environ:
            asked = []
            for word in filter(None, map(str.strip, environ[name].split(","))):
                named = [index for index, card in enumerate(cards) if card.uuid.startswith(word)]
                asked += [int(word)] if word.isdigit() else named[:1]
            visible = [index for index in asked if index in visible]
    return visible


class CpuBackend(DeviceBackend):
    """The stand-in where no device can be had: torch computes on the CPU, identities come from the adapter."""

    vendor = "simulated"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ()
    has_allocator = False

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", ("simulated",))

    def devices(self, machine: Machine) -> list[Device]:
        return []

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        import torch

        torch.set_num_threads(num_threads)
        return Activation("cpu", devices[local_rank].id, "simulated")

    def set_precision(self, precision: Precision) -> None:
        import torch

        torch.set_float32_matmul_precision("highest")

    def synchronize(self) -> None:
        """Do nothing: CPU operators are synchronous."""


# --- the device module of an adapter's process -----------------------------------------------------------------------


def install_stub(torch: Any, backend: DeviceBackend, environ: Mapping[str, str]) -> StubDevices:
    cards = laid_out_cards(torch, environ)
    stub = StubDevices(cards, visible_cards(cards, backend.visibility_variables, environ), Path(environ[MEMORY]))
    setattr(torch, backend.torch_type, stub)
    return stub


class StubDevices:
    """The device module that an adapter's process finds under the vendor's own type. It has no tensors."""

    def __init__(self, cards: Sequence[SimulatedCard], visible: Sequence[int], memory: Path) -> None:
        from flagperf.testing.torch_device.queue import Queue  # imports torch

        self._memory = memory
        self._cards = cards
        self._visible = visible
        self._current = 0
        self._queue = Queue(Options(), local_rank=0)

    # --- what adapters call -----------------------------------------------------------------------------------------

    def device_count(self) -> int:
        return len(self._visible)

    def set_device(self, index: int) -> None:
        if not 0 <= index < len(self._visible):
            raise RuntimeError(f"invalid device ordinal {index}: {len(self._visible)} are visible")
        self._current = index

    def get_device_name(self, index: int | None = None) -> str:
        return "simulated card"

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return card_properties(self._cards[self._visible[index]])

    def synchronize(self, device: Any = None) -> None:
        self._queue.synchronize()

    def reset_peak_memory_stats(self, device: Any = None) -> None: ...

    def max_memory_allocated(self, device: Any = None) -> int:
        return 0

    max_memory_reserved = max_memory_allocated

    def empty_cache(self) -> None: ...

    def Event(self, enable_timing: bool = False) -> Any:
        from flagperf.testing.torch_device.queue import QueueEvent

        return QueueEvent(self._queue)

    # --- what tests call --------------------------------------------------------------------------------------------

    def allocate(self, num_bytes: int) -> tuple[int, int]:
        card = self._visible[self._current]
        self._add(card, num_bytes)
        return card, num_bytes

    def free(self, block: tuple[int, int]) -> None:
        card, num_bytes = block
        self._add(card, -num_bytes)

    def queue(self, seconds: float) -> None:
        self._queue.add_seconds(seconds)

    def _add(self, card: int, num_bytes: int) -> None:
        used = [int(word) for word in self._memory.read_text().split()]
        used[card] += num_bytes
        write_memory(self._memory, used)
