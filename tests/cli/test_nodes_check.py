"""Asking all nodes whether they can be used together. The agents are scripts that say what real ones say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_scripts import ScriptAllocation
from flagperf.api import Device, Presence
from flagperf.builtin.ssh import LocalCluster
from flagperf.cli import run_cli
from flagperf.spec.node_facts import Environment, Fact, NodeFacts, VendorFacts
from flagperf.spec.protocol import NodeState
from flagperf.units import GIB


def state(num_cards: int = 8, version: str = "1.0", **changes: Any) -> NodeState:
    cards = tuple(Device(f"acme-{index}", "A1", "A1", index) for index in range(num_cards))
    vendor = VendorFacts("acme", f"flagperf-acme {version}", Presence("present", ("/dev/acme0",)), devices=cards)
    environment = Environment({"python": Fact("CPython 3.11.4")}, {"flagperf": "0.1.0", "torch": "2.8"}, {})
    facts = NodeFacts("inside", environment, (vendor,), allowed_cores=2)
    usual: dict[str, Any] = {"interface": "ib0", "address": "10.0.0.5", "shm_bytes": 64 * GIB, "max_files": 65536}
    return NodeState(facts, "/opt/python", **{**usual, **changes})


def agent(said: NodeState, clock_seconds: float = 0.0, rendezvous: str = "") -> str:
    place = "data(json.dumps({'address': '10.0.0.1', 'port': 4000}))"
    return f"""
while True:
    verb, body = asked()
    if verb == "rendezvous":
        {place if not rendezvous else ""}
        say("ended", code={3 if rendezvous else 0}, error={rendezvous!r})
    else:
        assert verb == "inspect", verb
        data(b"%d\\n" % (time.time_ns() + {int(clock_seconds * 1e9)}))
        answer({msgspec.json.encode(said).decode()!r} + "\\n")
"""


class Nodes:
    """`flagperf nodes check` on nodes with these agents."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capfd = monkeypatch, capfd

    def check(self, *scripts: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        self._patch.setenv("COLUMNS", "200")
        scripts = tuple(script.replace("inside", f"inside-{index}") for index, script in enumerate(scripts))
        self._patch.setattr(LocalCluster, "allocate", lambda *_: ScriptAllocation(*scripts))
        code = run_cli(["nodes", "check", "--nodes", str(len(scripts)), *options])
        output = self._capfd.readouterr()
        assert not output.err
        return code, output.out


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Nodes:
    return Nodes(monkeypatch, capfd)


def rows(output: str, heading: str) -> list[str]:
    """Below a heading and the names of the columns."""
    part = next(each for each in output.split("\n\n") if each.startswith(heading))
    return [" ".join(line.split()) for line in part.splitlines()[2:]]


def test_what_all_nodes_have_is_said_once(nodes: Nodes) -> None:
    code, output = nodes.check(*[agent(state())] * 2)
    assert code == 0
    assert output.startswith("2 nodes: 2 reached, 2 can be used\n")
    assert "cards all 8 x A1" in rows(output, "What") and output.count("8 x A1") == 1
    assert [row.split()[:5] for row in rows(output, "Nodes")] == [
        ["0", "host0", "inside-0", "yes", "10.0.0.5"],
        ["1", "host1", "inside-1", "yes", "10.0.0.5"],
    ]
    assert "Problems" not in output and "Warnings" not in output


def test_each_problem_is_named_with_its_nodes(nodes: Nodes) -> None:
    good, few, old = agent(state()), agent(state(7)), agent(state(version="0.9"))
    broken = agent(state(data_problem="the data folder /d cannot be read: Permission denied", shm_bytes=64 << 20))
    code, output = nodes.check(good, "", good, few, old, "sys.exit('Host key verification failed.')", broken, broken)
    assert code == 3
    assert output.startswith("8 nodes: 6 reached, 2 can be used\n")
    problems = rows(output, "Problems")
    assert problems[0] == ("1 the agent on it cannot be started: [Errno 2] No such file or directory: '/no/such/ssh'")
    assert problems[1] == "3 cards: 7 x A1, where most have 8 x A1"
    assert problems[2] == "4 adapters: flagperf-acme 0.9, where most have flagperf-acme 1.0"
    assert problems[3] == "5 the agent on it ended: Host key verification failed."
    assert problems[4] == "6-7 the data folder /d cannot be read: Permission denied"
    assert rows(output, "Warnings") == ["6-7 /dev/shm has 0.1 GiB; collectives and data loaders often need more"]
    assert "cards 5 of 6 8 x A1" in rows(output, "What")
    listed = rows(output, "Nodes")
    assert listed[1] == "1 host1 - no - - - - -" and "7 x A1 *" in listed[3] and "*" not in listed[0]


def test_one_machine_under_two_names_is_a_problem(nodes: Nodes) -> None:
    alias = agent(state()).replace("inside", "same")
    code, output = nodes.check(agent(state()), alias, alias)
    assert code == 3 and output.startswith("3 nodes: 3 reached, 2 can be used\n")
    assert rows(output, "Problems") == ["2 it is the machine of node 1 (host1): both are same at 10.0.0.5"]


def test_of_many_nodes_only_those_that_differ_are_listed(nodes: Nodes) -> None:
    scripts = [agent(state())] * 19 + [agent(state(interface="eth0"))]
    code, output = nodes.check(*scripts)
    assert code == 0  # another name is no problem
    assert "Nodes that differ (1 of 20)" in output
    assert len(rows(output, "Nodes")) == 1 and rows(output, "Nodes")[0].endswith("eth0 *")
    assert len(rows(nodes.check(*scripts, options=("--all",))[1], "Nodes")) == 20


def test_a_clock_far_away_is_a_warning_and_measured_over_the_channel(nodes: Nodes) -> None:
    scripts = agent(state()), agent(state(), clock_seconds=-100.0)
    code, output = nodes.check(*scripts)
    assert code == 0
    (warning,) = rows(output, "Warnings")
    assert warning.startswith("1 its clock is -") and warning.endswith("let both follow a time server")
    report = json.loads(nodes.check(*scripts, options=("--json",))[1])
    here, there = (node["clock"] for node in report["nodes"])
    assert abs(here["seconds"]) <= here["error_seconds"]
    assert abs(there["seconds"] + 100) <= there["error_seconds"]


def test_a_first_node_without_a_clear_address_is_named_and_the_others_are_asked(nodes: Nodes) -> None:
    unclear = agent(state(address="", interface=""), rendezvous="which address is not clear; give --interface")
    code, output = nodes.check(unclear, agent(state()))
    assert code == 3
    assert rows(output, "Problems") == ["0 the agent on it failed: which address is not clear; give --interface"]


def test_an_answer_that_is_none_is_a_problem_of_its_node(nodes: Nodes) -> None:
    strange = "asked(); answer('soon\\n{}\\n'); rest()"
    code, output = nodes.check(agent(state()), strange)
    assert code == 3 and "its answer to `inspect` cannot be read" in rows(output, "Problems")[0]


def test_this_machine_itself(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A real agent."""
    options = ["--vendor", "cpu", "--json", "--data-dir", str(tmp_path)]
    assert run_cli(["nodes", "check", *options]) == 0
    (node,) = json.loads(capfd.readouterr().out)["nodes"]
    assert node["address"] == "127.0.0.1" and node["facts"]["free port"] == "yes"
    assert abs(node["clock"]["seconds"]) <= node["clock"]["error_seconds"]
    assert run_cli(["nodes", "check", *options[:-1], str(tmp_path / "nothing")]) == 3
