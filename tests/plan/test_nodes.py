"""Asking nodes. The agents are real processes, mostly with a line of Python in place of flagperf.agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from plan_builders import node as node_facts
from plan_builders import vendor

from agent_scripts import ScriptAllocation, answering
from flagperf import version
from flagperf.api import Allocation, DataFile
from flagperf.builtin.ssh import LocalAllocation
from flagperf.errors import NodeFailed
from flagperf.fleet.fleet import Fleet, open_fleet
from flagperf.fleet.reach import check_nodes, describe_machine, describe_nodes, with_meeting_place
from flagperf.plugins.installed import load_plugins
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import CheckAnswer, CheckRequest, RendezvousAnswer
from run_builders import minimal_job

FACTS = node_facts(vendor("cpu"))


def described(allocation: Allocation, **request: object) -> tuple[NodeFacts, ...]:
    with open_fleet(allocation) as fleet:
        return describe_nodes(fleet, **request)  # type: ignore[arg-type]


def test_every_machine_is_asked_once() -> None:
    allocation = ScriptAllocation(answering(FACTS), answering(msgspec.structs.replace(FACTS, host="host2")))
    assert [facts.host for facts in described(allocation)] == ["host1", "host2"]
    assert allocation.started == [0, 1]
    allocation = ScriptAllocation(*[answering(FACTS)] * 3, share_host=True)
    assert [facts.host for facts in described(allocation)] == ["host1"] * 3
    assert allocation.started == [0]


def test_the_request_reaches_the_agent() -> None:
    told = (
        "verb, body = asked(); assert verb == 'describe' and body['with_memory'] and body['requires'] == ['x' * 10**5]"
    )
    answer = f"{told}; answer({msgspec.json.encode(FACTS).decode()!r}); rest()"
    assert described(ScriptAllocation(answer), with_memory=True, requires=("x" * 100_000,))[0].host == "host1"


GOOD = CheckAnswer((DataFile("a", 1, "00"),))
CHECK = CheckRequest("m:f", None, {})


def checked(*answers: CheckAnswer) -> CheckAnswer:
    with open_fleet(ScriptAllocation(*map(answering, answers))) as fleet:
        return check_nodes(fleet, CHECK)


def test_the_first_nodes_files_are_recorded_and_the_problem_of_any_node_counts() -> None:
    bad = CheckAnswer(problem="nothing here")
    assert checked(GOOD, CheckAnswer()) == GOOD
    assert checked(GOOD, bad).problem == "node 1 (host1): nothing here"
    assert checked(GOOD, bad, bad).problem == "node 1 (host1) and 1 more node: nothing here"
    assert checked(bad).problem == "nothing here"


def test_the_ranks_meet_where_the_first_node_says() -> None:
    expected = {"address": "10.0.0.0", "interface": "ib0"}
    told = f"verb, body = asked(); assert (verb, body) == ('rendezvous', {expected}), body;"
    answer = msgspec.json.encode(RendezvousAnswer("10.1.0.7", 4711)).decode()
    allocation = ScriptAllocation(f"{told} answer({answer!r}); rest()", "rest()")
    with open_fleet(allocation) as fleet:
        job = with_meeting_place(minimal_job(), fleet, "ib0")
    assert (job.master_address, job.master_port) == ("10.1.0.7", 4711)
    assert allocation.started == [0]


def test_this_machine_describes_itself_and_finds_a_port() -> None:
    facts = describe_machine(load_plugins(), with_memory=True)
    (cpu,) = [vendor for vendor in facts.vendors if vendor.vendor == "cpu"]
    assert cpu.presence is not None and cpu.presence.state == "present" and cpu.readings
    with open_fleet(LocalAllocation(2)) as fleet:
        job = with_meeting_place(minimal_job(), fleet, None)
    assert job.master_address == "127.0.0.1" and 1024 <= job.master_port < 65536


@pytest.fixture
def other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real agents find the distribution of another flagperf before their own."""
    other = tmp_path / "flagperf-9.8.7.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: flagperf\nVersion: 9.8.7\n")
    version()  # that of this process
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("ask", [describe_nodes, lambda fleet: check_nodes(fleet, CHECK)])
@pytest.mark.usefixtures("other_version")
def test_an_agent_of_another_version_is_refused_with_both_versions_and_the_remedy(
    ask: Callable[[Fleet], object],
) -> None:
    with open_fleet(LocalAllocation(1)) as fleet, pytest.raises(NodeFailed) as caught:
        ask(fleet)
    assert str(caught.value) == (
        f"node 0 (127.0.0.1) has flagperf 9.8.7, this command has flagperf {version()}: both need the same "
        f"version; install flagperf=={version()} there, or flagperf==9.8.7 here"
    )
    assert caught.value.exit_code == 3
