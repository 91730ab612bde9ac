"""Plugins that end the process, or never come back, are found in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

import pytest
from plugin_harness import HEADER, Site, device_source, problem

from flagperf.api import Allocation, Node
from flagperf.fleet.fleet import open_fleet
from flagperf.fleet.reach import describe_nodes
from flagperf.plugins.installed import load_plugins
from flagperf.plugins.trial import end_of_trial, load_tried_plugins


def test_what_ends_the_process_is_found_in_a_process_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are started after that leave it out."""
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    monkeypatch.setenv("FLAGPERF_WITHOUT", "trialtest29")
    ending = "@hookimpl\ndef flagperf_cases():\n    __import__('os')._exit(3)"
    site.add("flagperf-trialtest23", HEADER + ending).add("flagperf-trialtest24", device_source("trialtest24"))
    plugins = load_tried_plugins()
    assert problem(plugins, "flagperf_trialtest23") == (
        "to load it and to call its hooks ends the process (exit code 3); "
        "FLAGPERF_WITHOUT=flagperf_trialtest23 starts without it"
    )
    assert plugins.vendor_word("trialtest24") == "trialtest24"
    assert os.environ["FLAGPERF_WITHOUT"] == "trialtest29,flagperf-trialtest23:flagperf_trialtest23"
    assert "left out" in problem(load_plugins(), "flagperf_trialtest23")


def test_what_does_not_come_back_is_stopped() -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    assert end_of_trial(process, deadline=0.0) == "takes more than 30 s"
    assert process.returncode == -signal.SIGKILL


class Elsewhere(Allocation):
    """A node that has none of the command's environment, as another machine."""

    nodes = (Node("elsewhere"),)

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        return ["env", "-u", "FLAGPERF_WITHOUT", *command]

    def release(self) -> None: ...


def test_agents_on_other_machines_start_without_it_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    monkeypatch.setenv("FLAGPERF_WITHOUT", "trialtest25")
    site.add("flagperf-trialtest25", "import os; os._exit(3)")
    with open_fleet(Elsewhere()) as fleet:
        (facts,) = describe_nodes(fleet)
    assert "cpu" in [vendor.vendor for vendor in facts.vendors]
