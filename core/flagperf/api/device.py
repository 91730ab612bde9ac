"""DeviceBackend: the vendor's knowledge of its cards.

One object serves three processes. Which part is called where:

    parent   the class attributes, `peaks`, `tuning_folder`       no torch, no hardware, no vendor library
    agent    `presence`, `devices`, `versions`                    hardware, no torch
    worker   `activate` and everything below it                   torch
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from flagperf.api.machine import Machine
from flagperf.api.models import CardModel, Peak
from flagperf.errors import unknown_name

# Precision is one word with one meaning.


class Precision(msgspec.Struct, frozen=True):
    """The meaning of a precision word. `peak_row` is the row of the vendor's peak table that MFU divides by."""

    name: str
    """What users type: fp32, tf32, fp16, bf16, amp-fp16 or amp-bf16. A case whose rows have a precision each has
    `per-row`, which needs nothing of the adapter."""
    storage: str
    """Of weights in the model."""
    compute: str
    """Of matrix products."""
    master_weights: str
    """Of the weights that the optimizer updates."""
    peak_row: str
    """The row of the vendor's peak table that MFU divides by."""

    @property
    def is_per_row(self) -> bool:
        return self.name == "per-row"

    @property
    def autocast(self) -> str | None:
        """The autocast dtype, if compute differs from storage by autocast."""
        return self.compute if self.name.startswith("amp-") else None


PRECISIONS: dict[str, Precision] = {
    row[0]: Precision(*row)
    for row in (
        ("fp32", "float32", "float32", "float32", "fp32"),
        ("tf32", "float32", "tf32", "float32", "tf32"),
        ("fp16", "float16", "float16", "float32", "fp16"),
        ("bf16", "bfloat16", "bfloat16", "bfloat16", "bf16"),
        ("amp-fp16", "float32", "float16", "float32", "fp16"),
        ("amp-bf16", "float32", "bfloat16", "float32", "bf16"),
        ("per-row", "", "", "", ""),
    )
}


def precision(name: str) -> Precision:
    try:
        return PRECISIONS[name]
    except KeyError:
        raise unknown_name("precision", name, PRECISIONS) from None


class Presence(msgspec.Struct, frozen=True):
    """Presence of the vendor's cards on a machine.

    `present` needs evidence; `absent` is clean absence, nothing at all was found; `partial` is everything between
    (a card on the bus whose node is not mapped, a tool that fails) and stops a run that would silently use another
    vendor.
    """

    state: Literal["present", "absent", "partial"]
    """`present`, `absent` or `partial`."""
    evidence: tuple[str, ...] = ()
    """What was found, each in a few words that a person can check."""
    reason: str = ""
    """Why it is not simply present: what was looked for, or what to repair."""


class Device(msgspec.Struct, frozen=True):
    """One card, or one slice of a card. `id` is stable: the UUID where there is one, else the PCI address."""

    id: str
    """Stable: the UUID where there is one, else the PCI address; never an index."""
    model: str
    """The name of a model of the vendor's models.toml, else what the card calls itself."""
    short_name: str
    """As pages write it; of a slice with what part of the card it is."""
    physical_index: int
    """The vendor tool's own numbering."""
    memory_bytes: int | None = None
    """As the device reports it."""
    uuid: str = ""
    """As the vendor's tool writes it, with its prefix; "" where there is none."""
    pci_address: str = ""
    """`dddd:bb:dd.f`, lower case."""
    slice: str = ""
    """What part of a card this is, in the vendor's words. A slice has no peaks: those are the whole card's."""
    problem: str = ""
    """Why it cannot be used, though it is there."""
    near_cpus: str = ""
    """The allowed CPUs on its side of the machine, as the kernel lists them (`0-31,64-95`)."""
    properties: dict[str, str] = {}
    """What else the vendor says of it, for the record."""
    board: str = ""
    """Of a chip that shares its board with others: the board's serial number or any word that is the same for all chips
    of the board, and of no other. Empty: it has its board to itself."""


class Activation(msgspec.Struct, frozen=True):
    """The device that a worker got. `mapping` says how the torch device was joined to the card that the probe reads."""

    torch_device: str
    """What torch.device() takes, with the index."""
    device_id: str
    """`Device.id` of the card that it is."""
    mapping: Literal["uuid", "pci", "runtime_order", "slot", "simulated", "none"]
    """By what the two were joined; `none`: by nothing, the card is taken to be the one that the launcher chose."""


class AllocatorMemory(msgspec.Struct, frozen=True):
    """Peaks of the framework's allocator in this worker, in bytes."""

    peak_allocated_bytes: int
    """The most that tensors took."""
    peak_reserved_bytes: int
    """The most that the allocator held, what it kept for later included."""


class TimingEvent(abc.ABC):
    """A mark on the device's queue."""

    @abc.abstractmethod
    def record(self) -> None: ...

    @abc.abstractmethod
    def elapsed_ns(self, later: TimingEvent) -> int:
        """Return the device nanoseconds from this mark to `later`. Called only after a synchronize."""


class DeviceBackend(abc.ABC):
    """The vendor's knowledge of its cards. Extend kit.TorchDeviceBackend where torch reaches them as
    `torch.<torch_type>`."""

    vendor: ClassVar[str]
    """One lower-case word, the same as the package, the entry point and the value of --vendor."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other words that users type for this vendor."""

    title: ClassVar[dict[str, str]] = {}
    """The vendor's name on a page, by language: {"en": "Acme", "zh": "极点"}."""

    torch_type: ClassVar[str]
    """What torch.device() takes, without an index."""

    collective_backend: ClassVar[str]
    """What torch.distributed.init_process_group takes."""

    visibility_variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables that narrow and reorder the visible cards. The vendor's launcher keeps them equal."""

    precisions: ClassVar[tuple[str, ...]]
    """The precisions that these cards and this code support. A run in another one ends as unsupported."""

    memory_scope: ClassVar[Literal["device", "host"]] = "device"
    """`device`: each card has its own memory. `host`: all slots share one pool."""

    has_timing_events: ClassVar[bool] = False
    """True: steps are timed by `timing_event`, with no synchronisation inside a step."""

    is_fallback: ClassVar[bool] = False
    """True only for a vendor that every machine has: it is the default where no other is found."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions of the vendor's software stack whose versions belong in the record."""

    has_allocator: ClassVar[bool] = True
    """False: `allocator_memory` is not applicable for this vendor, by nature."""

    # --- parent -----------------------------------------------------------------------------------------------------

    def data_folder(self) -> Path | None:
        """Return the package's own folder, with `models.toml` and `tuning/<case>.toml`, see docs/add-a-vendor.md, or
        None."""
        return None

    def models(self) -> tuple[CardModel, ...]:
        """Return the card models that models.toml describes."""
        from flagperf.api.models import read_models

        path = self._data("models.toml")
        return read_models(path) if path else ()

    def peaks(self) -> list[Peak]:
        """Return ceilings by card model, each with its source. A model that is not listed has none: never a
        sibling's."""
        return [peak for model in self.models() for peak in model.peaks]

    def unsupported(self, model: str) -> dict[str, str]:
        """Return peak rows of the precisions that a card model cannot compute in -> who says so. A run in one is
        refused before it starts."""
        return next((each.unsupported for each in self.models() if each.name == model), {})

    def tuning_folder(self) -> Path | None:
        return self._data("tuning")

    def _data(self, name: str) -> Path | None:
        folder = self.data_folder()
        return folder / name if folder and (folder / name).exists() else None

    # --- agent ------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def presence(self, machine: Machine) -> Presence:
        """Tell from vendor evidence if cards are here: device nodes, PCI ids in sysfs, the vendor's library or tool.
        Never from torch."""

    @abc.abstractmethod
    def devices(self, machine: Machine) -> list[Device]:
        """Return the cards that a worker could use, in visible order. An inherited visibility variable narrows it."""

    def versions(self, machine: Machine) -> dict[str, str]:
        """Return `driver` and whatever else has a version of its own, as separate fields."""
        return {}

    # --- worker -----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def activate(self, local_rank: int, num_threads: int, devices: Sequence[Device]) -> Activation:
        """Take the device of this rank. Called once, before anything else touches the device; may import torch.
        `devices` are this node's cards of the run, in the order of the local ranks."""

    def set_precision(self, precision: Precision) -> None:
        """Set the framework's switches (TF32 and the like) so that `precision` is what really computes. fp32 and tf32
        are then proved on the card: one that multiplies otherwise ends as unsupported."""

    def precision_switches(self) -> dict[str, Any]:
        """Return what `set_precision` has set and whatever else decides how products are computed, such as reductions
        in fewer bits, read back from the framework: for the record, also of a row."""
        return {}

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done all that was queued."""

    def timing_event(self) -> TimingEvent:
        raise NotImplementedError(f"{self.vendor} declares no timing events")

    def allocator_memory(self) -> AllocatorMemory | None:
        return None

    def cache_bytes(self) -> int | None:
        """Return the size of the device's last-level cache, or None if the vendor's software does not tell."""
        return None

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return True if an exception of the worker means that memory ran out."""
        words = ("out of memory", "can't allocate memory", "cannot allocate memory")
        return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)

    def framework_state(self) -> dict[str, Any]:
        """Return switches and versions as the worker sees them, for the record."""
        return {}
