"""Asking nodes. Every question goes to an agent in a process of its own with a time limit: a hanging driver hangs
nothing here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from flagperf.api import Cluster, Node
from flagperf.errors import BadInput, FlagPerfError
from flagperf.spec import CheckAnswer, CheckRequest, DescribeRequest, NodeFacts

DESCRIBE_SECONDS = 60.0
CHECK_SECONDS = 3600.0
"""Hashing a large checkpoint takes its time."""

T = TypeVar("T")


def describe_nodes(cluster: Cluster, nodes: Sequence[Node], request: DescribeRequest) -> tuple[NodeFacts, ...]:
    """Nodes that share a host have the same facts, but for the port."""
    asked = nodes[:1] if cluster.nodes_share_host else nodes
    facts = [_ask(cluster, node, "describe", request, NodeFacts, DESCRIBE_SECONDS) for node in asked]
    return tuple(facts if len(facts) == len(nodes) else facts * len(nodes))


def check_nodes(cluster: Cluster, nodes: Sequence[Node], request: CheckRequest) -> CheckAnswer:
    """All nodes must be able to give the case its data; the first one's files are those that are recorded."""
    asked = nodes[:1] if cluster.nodes_share_host else nodes
    answers = [_ask(cluster, node, "check", request, CheckAnswer, CHECK_SECONDS) for node in asked]
    return next((answer for answer in answers if answer.problem), answers[0])


def describe_machine(cluster: Cluster, with_memory: bool = False) -> NodeFacts:
    """This machine, for `devices`, `env` and `vendors list`."""
    return describe_nodes(cluster, cluster.nodes(1), DescribeRequest(with_memory=with_memory))[0]


def _ask(cluster: Cluster, node: Node, verb: str, request: Any, answer: type[T], timeout_seconds: float) -> T:
    agent = cluster.start_agent(node, [verb])
    timer = threading.Timer(timeout_seconds, agent.kill)
    timer.start()
    try:
        agent.stdin.write(msgspec.json.encode(request))
        agent.stdin.close()
        errors = _Collector(agent.stderr)
        output = agent.stdout.read()
        code = agent.wait()
    finally:
        timer.cancel()
    if not timer.is_alive() and timer.finished.is_set() and code is not None and code < 0:
        raise BadInput(
            f"node {node.index} ({node.address}) did not answer `{verb}` within {timeout_seconds:g} s; a driver or a "
            "tool of an installed adapter may hang there: `flagperf vendors list` shows the adapters"
        )
    if code != 0:
        raise FlagPerfError(f"the agent on node {node.index} ({node.address}) failed:\n{errors.text()}")
    return msgspec.json.decode(output, type=answer)


class _Collector:
    """Reads a pipe to its end beside us, so that neither side waits for the other."""

    def __init__(self, stream: Any) -> None:
        self._content = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        self._content = stream.read()

    def text(self) -> str:
        self._thread.join(5)
        return self._content.decode(errors="replace").strip()
