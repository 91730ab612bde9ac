"""What an adapter finds on this node, and what becomes of it where a part of the adapter fails."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flagperf.agent.adapter import AdapterChild, finish, look
from flagperf.api import Activation, Availability, Device, DeviceBackend, Machine, MemoryProbe, Presence, Reading
from flagperf.errors import UnknownLayout

CARD = Device("GPU-1", "A1", "A1", 0)


class Backend(DeviceBackend):
    vendor = "acme"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32",)

    def presence(self, machine: Machine) -> Presence:
        return Presence("present", ("/dev/acme0",))

    def devices(self, machine: Machine) -> list[Device]:
        return [CARD]

    def activate(self, local_rank: int, num_threads: int, devices: Any) -> Activation:
        raise AssertionError("no worker is here")

    def synchronize(self) -> None: ...


class Probe(MemoryProbe):
    vendor = "acme"
    name = "acme-smi"

    def available(self, machine: Machine) -> Availability:
        return Availability(True)

    def sample(self, devices: Any, launcher_pid: int | None) -> list[Reading]:
        raise UnknownLayout("a new table", "what is this")


GIVEN: Any = SimpleNamespace(thing=Backend(), adapter="flagperf-acme 1.0")
PLUGINS: Any = SimpleNamespace(
    launcher=lambda vendor: SimpleNamespace(env_script=lambda machine: None), memory_probes=lambda vendor: [Probe()]
)


def test_memory_that_cannot_be_read_does_not_take_the_cards_away(tmp_path: Path) -> None:
    facts = look(GIVEN, Machine(tmp_path), PLUGINS, with_memory=True)
    assert (facts.devices, facts.readings, facts.error) == ((CARD,), (), "")
    assert facts.probe.startswith("acme-smi: UnknownLayout: a new table")


def test_a_child_that_has_no_group_of_its_own_yet_is_ended_all_the_same() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(["sleep", "600"])
    with tempfile.TemporaryFile() as errors:
        assert "did not answer in time" in finish(AdapterChild(GIVEN, process.pid, reading, errors), 0.0).error
    os.close(writing)
