"""The worker side of cards that torch reaches through one of its own device modules, `torch.<torch_type>`."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from flagperf.api.device import Activation, AllocatorMemory, Device, DeviceBackend, Precision, TimingEvent
from flagperf.errors import Unsupported
from flagperf.kit.presence import pci_address

_MATMUL_SWITCHES = (
    "fp32_precision",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Attributes of torch.backends.<torch_type>.matmul that are read for the record, where this torch has them."""


class TorchDeviceBackend(DeviceBackend):
    """Extend this: it does the worker's side of DeviceBackend for cards that torch reaches as `torch.<torch_type>`."""

    has_timing_events = True

    import_first: ClassVar[tuple[str, ...]] = ()
    """Modules that must be imported before torch, in this order."""

    tf32_switches: ClassVar[tuple[str, ...]] = ()
    """Attributes that let fp32 compute in TF32, HF32 or the like; all are off unless the precision is tf32. A name is
    below torch.backends (`acme.matmul.allow_tf32`), or of any module: `torch_acme:matmul.allow_hf32`."""

    version_fields: ClassVar[tuple[str, ...]] = ()
    """Attributes of torch.version that belong in the record."""

    pci_address_call: ClassVar[str] = ""
    """The runtime's function that writes a card's PCI address and gives 0, for a torch that tells no address itself."""

    pci_address_arguments: ClassVar[tuple[str, ...]] = ("address", "length", "device")
    """The order of its arguments: `int call(char *address, int length, int device)`."""

    pci_address_library: ClassVar[str] = ""
    """The file name of the library that has it, such as `libacmert.so`, as the loader finds it. Empty: torch itself is
    linked with it."""

    def wrong_build(self, torch: Any) -> str:
        """Return why this torch is not the vendor's build, or ""."""
        return ""

    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        problem = ""
        try:
            for name in self.import_first:  # before torch: some of these change what torch becomes
                importlib.import_module(name)
        except ImportError as error:
            problem = str(error)
        import torch

        problem = problem or self.wrong_build(torch)
        if problem:
            raise Unsupported(f"this torch ({torch.__version__}) cannot use {self.vendor} cards: {problem}")
        torch.set_num_threads(num_threads)
        self._module.set_device(local_rank)
        self._module.reset_peak_memory_stats()
        device, mapping = self._identify(local_rank, devices)
        return Activation(f"{self.torch_type}:{local_rank}", device.id, mapping)

    def set_precision(self, precision: Precision) -> None:
        import torch

        allowed = precision.compute == "tf32"
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        for name in self.tf32_switches:
            owner, attribute = self._switch(name)
            setattr(owner, attribute, allowed)

    def precision_switches(self) -> dict[str, Any]:
        import torch

        state: dict[str, Any] = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
        state |= {name: getattr(*self._switch(name)) for name in self.tf32_switches}
        matmul = getattr(getattr(torch.backends, self.torch_type, None), "matmul", None)
        found = (name for name in _MATMUL_SWITCHES if hasattr(matmul, name))
        return state | {f"{self.torch_type}.matmul.{name}": getattr(matmul, name) for name in found}

    def synchronize(self) -> None:
        self._module.synchronize()

    def timing_event(self) -> TimingEvent:
        return _TorchEvent(self._module)

    def allocator_memory(self) -> AllocatorMemory | None:
        return AllocatorMemory(self._module.max_memory_allocated(), self._module.max_memory_reserved())

    def cache_bytes(self) -> int | None:
        """Return what torch tells. A build that names it otherwise overrides this."""
        found = getattr(self._module.get_device_properties(self._module.current_device()), "L2_cache_size", 0)
        return int(found) or None

    def framework_state(self) -> dict[str, Any]:
        import torch

        state: dict[str, Any] = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device_name": self._module.get_device_name(),
        }
        state |= {f"version.{name}": getattr(torch.version, name, None) for name in self.version_fields}
        return state | self.precision_switches()

    @functools.cached_property
    def _module(self) -> Any:
        import torch

        module = getattr(torch, self.torch_type, None)
        if module is None:
            first = f"; {', '.join(self.import_first)} did not add it" if self.import_first else ""
            raise Unsupported(f"this torch ({torch.__version__}) has no torch.{self.torch_type}{first}")
        return module

    def _switch(self, name: str) -> tuple[Any, str]:
        """The object that has the switch, and the name of its attribute."""
        module, _, path = name.rpartition(":")
        *owners, attribute = path.split(".")
        return functools.reduce(getattr, owners, importlib.import_module(module or "torch.backends")), attribute

    def _identify(self, local_rank: int, devices: Sequence[Device]) -> tuple[Device, Literal["uuid", "pci", "none"]]:
        """Join the rank to its card by UUID, else by PCI address; some versions of torch tell neither. Never by
        position: the card is then taken to be the one that the launcher chose, and the figures are marked as
        unverified."""
        properties = self._module.get_device_properties(local_rank)
        uuid = _bare(str(getattr(properties, "uuid", "") or ""))
        for device in devices:
            if uuid and _bare(device.uuid) == uuid:
                return device, "uuid"
        address = self._address(local_rank, properties)
        on_place = []
        for device in devices:
            names = (_bare(device.uuid), _bare(device.properties.get("card", "")))
            # Slices share the address of their card: a UUID that is neither this one's nor the card's is a neighbour's.
            is_another_slice = bool(device.slice and device.uuid and uuid) and uuid not in names
            # A chip whose id had to be made up, because its board's other chips have the same address: the address does
            # not tell which of them torch means, even if the others are not in the run.
            shares_address = bool(device.board) and device.id not in (device.uuid, device.pci_address)
            is_there = address and _without_function(device.pci_address) == address
            if is_there and not is_another_slice and not shares_address:
                on_place.append(device)
        return (on_place[0], "pci") if len(on_place) == 1 else (devices[local_rank], "none")

    def _address(self, local_rank: int, properties: Any) -> str:
        """Return `dddd:bb:dd` as torch tells it, else as the runtime does: in the library that the adapter names, else
        in what torch is linked with. A symbol is looked up in a library and its dependencies, so the runtime's own file
        name, which differs by release, need not be known."""
        names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
        if all(hasattr(properties, name) for name in names):
            domain, bus, device = (int(getattr(properties, name)) for name in names)
            return f"{domain:04x}:{bus:02x}:{device:02x}"
        import torch

        library = self.pci_address_library or getattr(torch._C, "__file__", None)
        if not self.pci_address_call or library is None:
            return ""
        try:
            ask = getattr(ctypes.CDLL(library), self.pci_address_call, None)
        except OSError as error:  # no such library: the figures are then marked as unverified
            print(f"{self.pci_address_call} cannot be asked for PCI addresses: {error}", file=sys.stderr)
            return ""
        buffer = ctypes.create_string_buffer(64)
        given = {"address": buffer, "length": ctypes.c_size_t(len(buffer)), "device": ctypes.c_int(local_rank)}
        if ask is None or ask(*(given[name] for name in self.pci_address_arguments)) != 0:
            return ""
        return _without_function(pci_address(buffer.value.decode(errors="replace")))


class _TorchEvent(TimingEvent):
    def __init__(self, module: Any) -> None:
        self._event = module.Event(enable_timing=True)

    def record(self) -> None:
        self._event.record()

    def elapsed_ns(self, later: TimingEvent) -> int:
        assert isinstance(later, _TorchEvent)
        milliseconds: float = self._event.elapsed_time(later._event)
        return round(milliseconds * 1e6)


def _bare(uuid: str) -> str:
    """Return a UUID without the word that tools put before it (`GPU-`, `MIG-`), which torch leaves out."""
    kind, dash, rest = uuid.lower().partition("-")
    return rest if dash and not set(kind) <= set("0123456789abcdef") else uuid.lower()


def _without_function(address: str) -> str:
    return address.rpartition(".")[0]  # torch does not tell the function
