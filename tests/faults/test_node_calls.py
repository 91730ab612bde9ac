"""Calls into an adapter on a node: the agent asks it in a fork, the probe in its own process. All become records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faulty_flagperf import SITE, environment

from flagperf import version
from flagperf.agent import probe as agent_probe
from flagperf.agent.describe import finish_query, start_query
from flagperf.api import Device, Machine
from flagperf.event_files import EventWriter, read_events
from flagperf.events import ProbeEnded, ProcessesListed, SampleMissed
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.spec.protocol import ProbeRequest, hello_line

DEVICES = (Device("faulty-0", "Faulty F1", "F1", 0),)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.delenv("FLAGPERF_FAULT", raising=False)
    return load_plugins(["flagperf-faulty 1.0"])


@pytest.mark.parametrize(
    ("call", "way"),
    [
        *zip(("presence", "devices", "versions", "env_script"), ("raise", "exit", "type", "raise"), strict=True),
        ("presence", "os_exit"),
        ("devices", "loop"),
    ],
)
def test_what_an_adapter_does_in_the_agent_is_its_error(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch, call: str, way: str
) -> None:
    monkeypatch.setenv("FLAGPERF_FAULT", f"{call}:{way}")
    query = start_query(plugins.provided_backend("faulty"), Machine(), plugins, with_memory=True)
    facts = finish_query(query, timeout_seconds=0.5 if way == "loop" else 600)
    assert facts.error.startswith("its adapter flagperf-faulty 1.0 failed: ")
    assert "Traceback" not in facts.error and not facts.devices


@pytest.mark.parametrize("way", ["raise", "exit", "type"])
class TestProbe:
    @pytest.fixture(autouse=True)
    def _faulty(self, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
        (self.probe,) = plugins.memory_probes("faulty")
        self.request = ProbeRequest("faulty", 0, DEVICES, 1.0, str(tmp_path / "samples.jsonl"))
        self.fault = lambda call: monkeypatch.setenv("FLAGPERF_FAULT", f"{call}:{way}")

    def written_by(self, function: Any, *arguments: Any) -> Any:
        with EventWriter(Path(self.request.path)) as writer:
            function(self.probe, self.request, *arguments, writer)
        (event,) = read_events(Path(self.request.path)).events
        return event

    def test_a_sample_is_a_gap(self) -> None:
        self.fault("sample")
        assert isinstance(self.written_by(agent_probe._sample, 1), SampleMissed)

    def test_a_list_of_processes_is_its_problem(self) -> None:
        self.fault("processes")
        listed = self.written_by(agent_probe._list_processes)
        assert isinstance(listed, ProcessesListed) and listed.problem

    def test_a_probe_that_cannot_say_whether_it_is_available_is_not_used(self) -> None:
        self.fault("available")
        choice = agent_probe.choose_probe([self.probe], Machine())
        assert choice.probe is None and choice.not_used["faulty"]


def test_an_error_on_closing_the_probe_is_for_the_log_alone(tmp_path: Path) -> None:
    request = ProbeRequest("faulty", 0, DEVICES, 1.0, str(tmp_path / "samples.jsonl"))
    done = subprocess.run(
        [sys.executable, "-m", "flagperf.agent", "probe"],
        input=hello_line(version()) + msgspec.json.encode(request) + b"\n",
        env=environment("close:exit"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 and b"close: SystemExit: " in done.stderr
    assert isinstance(read_events(Path(request.path)).events[-1], ProbeEnded)
