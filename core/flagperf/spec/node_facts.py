"""An agent's description of its node. The parent plans from it and never accesses hardware itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from flagperf.api import Device, Presence, Reading
from flagperf.errors import BadInput, unknown_name
from flagperf.messages import Message, message


class Fact(msgspec.Struct, frozen=True):
    """One line of a page's environment section: captured, stated by the machine's owner, or absent with a reason."""

    value: str | None
    how: Literal["captured", "stated", "absent"] = "captured"
    reason: str = ""
    """The reason in English."""
    message: Message | None = None
    """The reason as data."""


def absent_fact(code: str, /, **params: Any) -> Fact:
    why = message(code, **params)
    return Fact(None, "absent", str(why), why)


class Environment(msgspec.Struct, frozen=True):
    """Software and hardware of a node, except its cards. The keys of `facts` are ENVIRONMENT_FACTS."""

    facts: dict[str, Fact]
    packages: dict[str, str]
    """Distribution -> version, for the packages that a run uses."""
    variables: dict[str, str]
    """Environment variables that affect results. Only those on a fixed list are recorded."""


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
    """One installed adapter on this node."""

    vendor: str
    adapter: str
    presence: Presence | None
    memory_scope: str = "device"
    devices: tuple[Device, ...] = ()
    versions: dict[str, str] = {}
    env_script: str = ""
    """A shell script that the agent runs before it starts workers."""
    simulated: bool = False
    """The cards are simulated by a test."""
    readings: tuple[Reading, ...] = ()
    """Current memory use, if requested."""
    probe: str = ""
    error: str = ""
    """Why nothing is known of its cards."""
    has_failed: bool = False
    """The error is the adapter's own, and not one for the user to fix; or, without an error, its cards are known and
    `probe` says why their memory is not."""

    @property
    def shown_vendor(self) -> str:
        """Return the vendor's name for display. Simulated cards are always labelled."""
        return f"{self.vendor} (simulated)" if self.simulated else self.vendor


class MissingRequirement(msgspec.Struct, frozen=True):
    requirement: str
    """As in case.toml: `torch>=2.1`."""
    found: str | None = None
    """The installed version, which does not satisfy the requirement. None if not installed."""

    def __str__(self) -> str:
        return f"{self.requirement} ({f'found {self.found}' if self.found else 'not installed'})"


class NodeFacts(msgspec.Struct, frozen=True):
    host: str
    environment: Environment
    vendors: tuple[VendorFacts, ...]
    allowed_cores: int
    missing_requirements: tuple[MissingRequirement, ...] = ()
    """Requirements of the case that this node's Python does not satisfy."""

    def broken_devices(self, vendor: str) -> list[Device]:
        """Return the vendor's cards here that cannot be used."""
        return [card for facts in self.vendors if facts.vendor == vendor for card in facts.devices if card.problem]


def state_environment(environment: Environment, stated: Mapping[str, object], origin: str) -> Environment:
    """Fill absent facts with those that the machine's owner states in `[environment]` of flagperf.toml.

    A captured fact takes precedence and notes that a stated value was ignored.
    `origin` is the file of the stated values, for messages. A filled fact keeps the reason why it was absent.
    """
    facts = dict(environment.facts)
    for key, value in stated.items():
        if key not in ENVIRONMENT_FACTS:
            raise unknown_name("key in [environment]", key, ENVIRONMENT_FACTS, f"({origin})")
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"[environment] {key} in {origin} must be a non-empty string; got {value!r}")
        fact = facts.get(key, Fact(None, "absent"))
        text = " ".join(value.split())
        if fact.how == "captured":
            facts[key] = msgspec.structs.replace(fact, reason=f"stated value {text!r} was not used: captured")
        else:
            facts[key] = Fact(text, "stated", fact.reason)
    return msgspec.structs.replace(environment, facts=facts)
