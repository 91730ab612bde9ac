"""What this node and its adapters are, and what becomes of it where a part of an adapter fails."""

from __future__ import annotations

import io
import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from flagperf.agent.describe import AdapterQuery, answer_describe, finish_query, missing_requirements, query_adapter
from flagperf.api import Availability, Machine, MemoryProbe, Reading
from flagperf.errors import UnknownLayout
from flagperf.kit import Card, make_devices
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import DescribeRequest
from minimal_backend import CARD, MinimalBackend

ONE = Card(0, ("A1",), uuid="GPU-1")


class Probe(MemoryProbe):
    vendor = "acme"
    name = "acme-smi"

    def available(self, machine: Machine) -> Availability:
        return Availability(True)

    def sample(self, devices: Any, launcher_pid: int | None) -> list[Reading]:
        raise UnknownLayout("a new table", "what is this")


GIVEN: Any = SimpleNamespace(value=MinimalBackend(), adapter="flagperf-acme 1.0")
PLUGINS: Any = SimpleNamespace(
    launcher=lambda vendor: SimpleNamespace(env_script=lambda machine: None), memory_probes=lambda vendor: [Probe()]
)


def test_describe_prints_facts_of_this_node() -> None:
    answer = io.BytesIO()
    request = DescribeRequest(with_memory=True)
    assert answer_describe(msgspec.json.encode(request), io.BytesIO(), answer) == 0
    facts = msgspec.json.decode(answer.getvalue(), type=NodeFacts)
    (cpu,) = [vendor for vendor in facts.vendors if vendor.vendor == "cpu"]
    assert cpu.presence is not None and cpu.presence.state == "present"
    assert [device.id for device in cpu.devices] == [f"cpu:{slot}" for slot in range(64)]
    (pool,) = cpu.readings  # slots share one
    assert 0 < (pool.used_bytes or 0) < (pool.total_bytes or 0)
    assert facts.allowed_cores <= (os.cpu_count() or 1)


def test_requirements_that_are_not_met_come_with_what_was_found() -> None:
    missing = missing_requirements(["click>=8", "click>=99", "no-such-distribution>=1"])
    assert str(missing[0]).startswith("click>=99 (found ")
    assert str(missing[1]) == "no-such-distribution>=1 (not installed)"
    assert len(missing) == 2


def test_memory_that_cannot_be_read_does_not_take_the_cards_away(tmp_path: Path) -> None:
    facts = query_adapter(GIVEN, Machine(tmp_path), PLUGINS, with_memory=True)
    assert (facts.devices, facts.readings, facts.error) == ((CARD,), (), "")
    assert facts.probe.startswith("acme-smi: UnknownLayout: a new table")


def test_a_mistake_of_the_user_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MinimalBackend, "visibility_variables", ("A", "B"))
    monkeypatch.setattr(MinimalBackend, "devices", lambda self, machine: make_devices(self, machine, [ONE]))
    facts = query_adapter(GIVEN, Machine(tmp_path, environ={"A": "0", "B": "1"}), PLUGINS, with_memory=False)
    assert facts.error.startswith("visibility variables disagree: A='0', B='1'.")
    assert facts.presence is None


def test_a_child_that_has_no_group_of_its_own_yet_is_ended_too() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(["sleep", "600"])
    with tempfile.TemporaryFile() as errors:
        assert "did not answer in time" in finish_query(AdapterQuery(GIVEN, process.pid, reading, errors), 0.0).error
    os.close(writing)
