"""MemoryProbe: the vendor's own figures of its cards (memory, power, clock), read beside the workers in a process of
its own."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from flagperf.api.device import Device
from flagperf.api.machine import Machine


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One card at one moment. Integer bytes; what could not be read is None with its reason in `missing`, never 0."""

    device_id: str
    """`Device.id`. A tool's parser puts the tool's own key here (UUID, PCI address, index), and the kit joins it to a
    card."""
    used_bytes: int | None = None
    """Memory in use now."""
    total_bytes: int | None = None
    """Capacity."""
    utilisation_percent: float | None = None
    """0 to 100, as the source defines it."""
    power_watts: float | None = None
    """Of the card, or of its board: see MemoryProbe.board_figures."""
    temperature_celsius: float | None = None
    """Of the chip."""
    missing: dict[str, str] = {}
    """Figure -> why there is no number, in the source's own words where it says something."""
    properties: dict[str, str] = {}
    """What else the source says of the card (uuid, pci_address, name, driver), for discovery."""
    energy_joules: float | None = None
    """A counter that only rises, since some beginning of the source's own. Differences are what counts."""
    clock_mhz: float | None = None
    """The clock of the compute units now."""
    throttle_reasons: tuple[str, ...] | None = None
    """Why the clock is held down now, each in a few plain lower-case words, with `thermal` or `power` among them where
    that is why. () is not throttled, None is not read. An idle card is not throttled."""


FIGURES = (
    "used_bytes",
    "total_bytes",
    "utilisation_percent",
    "power_watts",
    "temperature_celsius",
    "energy_joules",
    "clock_mhz",
    "throttle_reasons",
)
"""Where a probe does not read one of the last three, it is None without a reason."""


class ProcessReading(msgspec.Struct, frozen=True):
    """The memory that one process uses of one card."""

    device_id: str
    """`Device.id`."""
    pid: int
    """On the host, where the source tells that."""
    used_bytes: int | None = None
    """None where the source does not say."""


class Availability(msgspec.Struct, frozen=True):
    """Availability of a probe on a machine."""

    available: bool
    """Whether the probe can be used here."""
    reason: str = ""
    """Why not: what was looked for and where."""


class MemoryProbe(abc.ABC):
    """A way to read what the vendor's cards use. Extend kit.ToolProbe where a tool prints it."""

    vendor: ClassVar[str]
    """The word of the device backend that it belongs to."""
    name: ClassVar[str]
    """How the figures are read: one word, printed beside them."""

    figures: ClassVar[tuple[str, ...]] = FIGURES[:5]
    """What this probe can read, of FIGURES. The others are `unsupported`, and a number given for one is dropped. The
    default is the first five: a probe that reads energy, clock or throttling says so."""

    board_figures: ClassVar[tuple[str, ...]] = ()
    """Those of `figures` that the source gives for a board and not for each of its chips, such as `power_watts`. The
    reading of every chip carries the board's figure; sums count it once for each `Device.board`."""

    minimum_interval_seconds: ClassVar[float] = 0.1
    """The shortest interval that the source supports; a shorter one that is asked for is raised to this."""

    @abc.abstractmethod
    def available(self, machine: Machine) -> Availability:
        """Tell if this probe can work here. Probes are tried in list order; reasons of the others are kept."""

    @abc.abstractmethod
    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        """Return one reading per device that answered, keyed by device id. `launcher_pid` is the process that starts
        the workers, None before it is there. May raise: the failure is recorded as a gap and sampling goes on."""

    def processes(self, devices: Sequence[Device]) -> list[ProcessReading]:
        """Return the processes on the cards, if the source can list them. Called before the workers start and after
        they have ended, never at the sampling rate."""
        return []

    def close(self) -> None:
        """Give back what the probe holds. Called once at the end."""
