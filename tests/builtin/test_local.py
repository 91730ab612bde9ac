from __future__ import annotations

import os

import msgspec

from flagperf.api import Node
from flagperf.builtin.local import LocalCluster
from flagperf.plugins import core_version
from flagperf.spec import NodeFacts, hello_line


def test_every_node_is_this_machine() -> None:
    cluster = LocalCluster()
    assert cluster.nodes(2) == [Node(0, "127.0.0.1"), Node(1, "127.0.0.1")]
    assert cluster.nodes_share_host


def test_an_agent_answers_in_a_session_of_its_own() -> None:
    agent = LocalCluster().start_agent(Node(0, "127.0.0.1"), ["describe"])
    assert os.getsid(agent._process.pid) == agent._process.pid  # type: ignore[attr-defined]
    agent.stdin.write(hello_line(core_version()) + b"{}")
    agent.stdin.close()
    assert agent.stdout.readline() == hello_line(core_version())
    facts = msgspec.json.decode(agent.stdout.read(), type=NodeFacts)
    assert agent.wait() == 0
    assert "cpu" in [vendor.vendor for vendor in facts.vendors]
    assert 0 < facts.free_port < 65536


def test_waiting_is_bounded_and_an_agent_can_be_killed() -> None:
    agent = LocalCluster().start_agent(Node(0, "127.0.0.1"), ["describe"])
    assert agent.wait(0.01) is None
    agent.kill()
    assert agent.wait(10) == -9
    for stream in (agent.stdin, agent.stdout, agent.stderr):
        stream.close()


def test_an_unknown_verb_is_refused_with_the_usage() -> None:
    agent = LocalCluster().start_agent(Node(0, "127.0.0.1"), ["dance"])
    agent.stdin.close()
    assert b"describe|check|run|probe" in agent.stderr.read()
    assert agent.wait(10) == 2
