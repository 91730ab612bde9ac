"""Asking nodes. The agents are real processes, mostly with a line of Python in place of flagperf.agent."""

from __future__ import annotations

import msgspec
from plan_builders import node as node_facts
from plan_builders import vendor

from agent_scripts import ScriptAllocation, StandingTime, answering
from flagperf.api import Allocation, DataFile
from flagperf.fleet.fleet import open_fleet
from flagperf.fleet.reach import check_nodes, describe_nodes, with_meeting_place
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import CheckAnswer, CheckRequest, RendezvousAnswer
from run_builders import minimal_job

FACTS = node_facts(vendor("cpu"))


def described(allocation: Allocation, **request: object) -> tuple[NodeFacts, ...]:
    with open_fleet(allocation, waiting=StandingTime()) as fleet:
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
    with open_fleet(ScriptAllocation(*map(answering, answers)), waiting=StandingTime()) as fleet:
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
    with open_fleet(allocation, waiting=StandingTime()) as fleet:
        job = with_meeting_place(minimal_job(), fleet, "ib0")
    assert (job.master_address, job.master_port) == ("10.1.0.7", 4711)
    assert allocation.started == [0]
