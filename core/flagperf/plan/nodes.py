"""Asking nodes. Every question goes to an agent in a process of its own with a time limit, so that a driver that hangs
does not hang the command."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeVar

import msgspec

from flagperf.api import Cluster, Node
from flagperf.errors import NodeFailed, PluginFailed
from flagperf.plugins import core_version, trial_seconds
from flagperf.spec import CheckAnswer, CheckRequest, DescribeRequest, NodeFacts, check_hello, hello_line
from flagperf.units import exit_status

ADAPTER_SECONDS = 30.0
"""Time limit of an adapter's search for its cards."""

DESCRIBE_SECONDS = 60.0
"""Time limit of `describe`, without what plugins may take that hang: longer than that of any adapter."""

CHECK_SECONDS = 3600.0
"""Time limit of `check`: hashing a large checkpoint is slow."""

T = TypeVar("T")


def describe_nodes(
    cluster: Cluster,
    nodes: Sequence[Node],
    *,
    vendor: str | None = None,
    with_memory: bool = False,
    requires: tuple[str, ...] = (),
) -> tuple[NodeFacts, ...]:
    """With `vendor`, only that adapter is asked. Nodes that share a host have the same facts."""
    request = DescribeRequest(ADAPTER_SECONDS, vendor, with_memory, requires)
    asked = nodes[:1] if cluster.nodes_share_host else nodes
    limit = DESCRIBE_SECONDS + trial_seconds()
    facts = [ask_node(cluster, node, "describe", request, NodeFacts, limit) for node in asked]
    return tuple(facts if len(facts) == len(nodes) else facts * len(nodes))


def check_nodes(cluster: Cluster, nodes: Sequence[Node], request: CheckRequest) -> CheckAnswer:
    """Every node must have the case's data. The files of the first node are recorded."""
    asked = nodes[:1] if cluster.nodes_share_host else nodes
    answers = [ask_node(cluster, node, "check", request, CheckAnswer, CHECK_SECONDS) for node in asked]
    return next((answer for answer in answers if answer.problem), answers[0])


def describe_machine(cluster: Cluster, with_memory: bool = False) -> NodeFacts:
    """This machine, for `devices`, `env` and `vendors list`."""
    return describe_nodes(cluster, cluster.nodes(1), with_memory=with_memory)[0]


def ask_node(cluster: Cluster, node: Node, verb: str, request: Any, answer: type[T], timeout_seconds: float) -> T:
    agent = cluster.start_agent(node, [verb])
    output, errors = _Collector(node, "stdout", agent.stdout), _Collector(node, "stderr", agent.stderr)
    try:
        with agent_stream(node, "stdin"):
            agent.stdin.write(hello_line(core_version()) + msgspec.json.encode(request))
            agent.stdin.close()
        code = agent.wait(timeout_seconds)
    finally:
        agent.kill()  # with everything that still holds its pipes; on Ctrl-C too
    said, complaint = output.content(), errors.content()
    if code is None:
        raise NodeFailed(f"node {node.index} ({node.address}) did not answer `{verb}` within {timeout_seconds:g} s")
    hello, _, content = said.partition(b"\n")
    if hello or code == 0:
        other = f"node {node.index} ({node.address})"
        check_hello(hello, other=other, own="this command", own_version=core_version())
    if code != 0:
        why = complaint.decode(errors="replace").strip()
        raise NodeFailed(f"the agent on node {node.index} ({node.address}) failed: {why or exit_status(code)}")
    try:
        return msgspec.json.decode(content, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"answered `{verb}` with what is no answer ({error})"
        raise NodeFailed(f"the agent on node {node.index} ({node.address}) {what}") from None


@contextlib.contextmanager
def agent_stream(node: Node, name: str) -> Iterator[None]:
    """While a stream of an agent is used: it is the cluster's own object, and may raise anything. A stdin that is
    closed is no failure: the agent has ended, and its exit code and stderr tell why."""
    try:
        yield
    except Exception as error:
        if name == "stdin" and isinstance(error, OSError):
            return
        what = f"{name} of the agent on node {node.index} ({node.address})"
        raise PluginFailed(f"{what} failed: {type(error).__name__}: {error}") from error


class _Collector:
    """Reads a pipe to its end in a thread, so that neither side blocks the other."""

    def __init__(self, node: Node, name: str, stream: IO[bytes]) -> None:
        self._content = b""
        self._failure: PluginFailed | None = None
        self._thread = threading.Thread(target=self._read, args=(node, name, stream), daemon=True)
        self._thread.start()

    def _read(self, node: Node, name: str, stream: IO[bytes]) -> None:
        try:
            with agent_stream(node, name):
                self._content = bytes(stream.read())
        except PluginFailed as error:
            self._failure = error

    def content(self) -> bytes:
        self._thread.join(5)
        if self._failure is not None:
            raise self._failure
        return self._content
