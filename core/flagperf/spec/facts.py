"""NodeFacts: what an agent's `describe` says of its node. The parent plans from this and never touches hardware."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from flagperf.api import Device, Presence, Reading
from flagperf.messages import Message, message


class Fact(msgspec.Struct, frozen=True):
    """One line of a page's environment section: captured, stated by the machine's owner, or absent with a reason."""

    value: str | None
    how: Literal["captured", "stated", "absent"] = "captured"
    reason: str = ""
    """In English."""
    message: Message | None = None
    """The reason as data."""


def absent_fact(code: str, /, **params: Any) -> Fact:
    why = message(code, **params)
    return Fact(None, "absent", str(why), why)


class Environment(msgspec.Struct, frozen=True):
    """A node's software and hardware without the cards. `facts` has the keys of ENVIRONMENT_FACTS."""

    facts: dict[str, Fact]
    packages: dict[str, str]
    """Distribution -> version, of what a run uses."""
    variables: dict[str, str]
    """Environment variables that change results, from a fixed list; never others."""


ENVIRONMENT_FACTS = (
    "machine",
    "cpu",
    "network",
    "os",
    "kernel",
    "container",
    "docker",
    "driver",
    "framework",
    "python",
    "commit",
)


class VendorFacts(msgspec.Struct, frozen=True):
    """One installed adapter on this node. `error` is set where its code raised."""

    vendor: str
    adapter: str
    presence: Presence | None
    memory_scope: str = "device"
    devices: tuple[Device, ...] = ()
    versions: dict[str, str] = {}
    env_script: str = ""
    """A shell script that the agent runs before it starts workers."""
    simulated: bool = False
    """The cards are a test's, and torch computes on the CPU."""
    readings: tuple[Reading, ...] = ()
    """Memory now, where it was asked for."""
    probe: str = ""
    error: str = ""

    @property
    def shown_vendor(self) -> str:
        """The vendor's word as people see it: simulated cards are always called that."""
        return f"{self.vendor} (simulated)" if self.simulated else self.vendor


class MissingRequirement(msgspec.Struct, frozen=True):
    requirement: str
    """As case.toml writes it: `torch>=2.1`."""
    found: str | None = None
    """The version that is installed and does not fit; None where there is none."""

    def __str__(self) -> str:
        return f"{self.requirement} ({f'found {self.found}' if self.found else 'not installed'})"


class NodeFacts(msgspec.Struct, frozen=True):
    host: str
    environment: Environment
    vendors: tuple[VendorFacts, ...]
    allowed_cores: int
    free_port: int
    missing_requirements: tuple[MissingRequirement, ...] = ()
    """Distributions that the case requires and this node's Python does not have."""
