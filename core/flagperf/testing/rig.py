"""Rig: what the suites must know about an adapter, and where its cards are, real or simulated."""

from __future__ import annotations

import abc
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from flagperf.api import Device, Reading
from flagperf.plugins.installed import load_plugins
from flagperf.testing.tools import write_memory

MEMORY = "FLAGPERF_SIMULATE_MEMORY"
CARDS = "FLAGPERF_SIMULATE_CARDS"


class SimulatedCard(msgspec.Struct, frozen=True):
    """One card as torch would report it. What this vendor's torch does not report stays empty."""

    id: str
    """The id that the adapter must give it."""
    memory_bytes: int
    """Its capacity, which the tool must print too."""
    uuid: str = ""
    """As the tool writes it; torch then tells it without the prefix."""
    pci_address: str = ""
    """`dddd:bb:dd.f`, as torch would tell it."""


class Simulation(msgspec.Struct, frozen=True):
    """Two or more cards on a machine laid out in a folder, in the order of their physical indices."""

    root: Path
    """What `/` is for the adapter."""
    cards: tuple[SimulatedCard, ...]
    """In the order of their physical indices: card 0 is the first line of the memory file."""
    memory: Path
    """The memory file that the fake tools and libraries read."""
    variables: Mapping[str, str]
    """PATH, LD_LIBRARY_PATH and whatever else brings them in; see simulated_environ."""
    torch_version: Mapping[str, str] = {}
    """Attributes of torch.version by which this vendor's build is known."""

    def environ(self, **variables: str) -> dict[str, str]:
        """For a child process. Visibility variables of this machine do not reach it."""
        cards = self.root / "simulated-cards.json"
        cards.write_text(json.dumps({"cards": msgspec.to_builtins(self.cards), "version": dict(self.torch_version)}))
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("VISIBLE_DEVICES")}
        return {**inherited, **self.variables, MEMORY: str(self.memory), CARDS: str(cards), **variables}

    def use(self, *used_bytes: int) -> None:
        """What each card uses from now on."""
        write_memory(self.memory, used_bytes)


class Recorded(msgspec.Struct, frozen=True):
    """An output of the vendor's tool, and exactly what it says."""

    parse: Callable[[str], list[Reading]]
    """One of smi.py's functions."""
    text: str
    """An output as the tool printed it, with ids and serial numbers changed."""
    readings: tuple[Reading, ...]
    """All that it says, in bytes, in the order of the lines."""


class Rig(abc.ABC):
    """What the suites must know about an adapter. Extend it once and give it to every suite."""

    vendor: ClassVar[str]
    """The word of the adapter under test."""

    recorded: ClassVar[tuple[Recorded, ...]] = ()
    """At least one per parser."""

    @abc.abstractmethod
    def lay_out(self, folder: Path) -> Simulation | None:
        """Simulated cards in a fresh folder, idle; None where there is nothing but the real machine."""

    def break_source(self, simulation: Simulation) -> None:
        """Make the tool or library fail from now on: a driver that went away."""
        raise NotImplementedError(f"{type(self).__name__} cannot break its source")

    def expected_name(self, device: Device) -> str:
        """What a visibility variable must call a card: its UUID or its index."""
        return str(device.physical_index)


class InstalledRig(Rig):
    """An adapter of which only the installed package is here: what needs simulated cards is skipped."""

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor  # type: ignore[misc]

    def lay_out(self, folder: Path) -> None:
        return None

    def expected_name(self, device: Device) -> str:
        """What its launcher says: whether these cards go by UUID or by index only their vendor knows."""
        named = getattr(load_plugins().launcher(self.vendor), "visible_name", super().expected_name)
        return str(named(device))
