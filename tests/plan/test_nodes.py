"""Asking nodes. The agents are real processes, with a line of Python in place of flagperf.agent."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from plan_builders import node as node_facts
from plan_builders import vendor

from flagperf.api import AgentProcess, Cluster, DataFile, Node
from flagperf.builtin.local import LocalCluster
from flagperf.errors import NodeFailed, PluginFailed
from flagperf.plan import nodes
from flagperf.plan.nodes import check_nodes, describe_machine, describe_nodes
from flagperf.plugins import core_version
from flagperf.spec import CheckAnswer, CheckRequest, hello_line

HELLO = hello_line(core_version()).decode()
FACTS = msgspec.json.encode(node_facts(vendor("cpu"))).decode()
ANSWER = f"sys.stdin.read(); sys.stdout.write({HELLO + FACTS!r})"


class ScriptAgent(AgentProcess):
    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import sys, time, os; {script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def wait(self, timeout_seconds: float | None = None) -> int | None:
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self.process.kill()


class ScriptCluster(Cluster):
    name = "scripts"

    def __init__(self, *scripts: str, share_host: bool = False) -> None:
        self.scripts = scripts
        self.nodes_share_host = share_host  # type: ignore[misc]
        self.asked: list[tuple[int, str]] = []

    def nodes(self, num_nodes: int) -> list[Node]:
        return [Node(index, f"10.0.0.{index}") for index in range(num_nodes)]

    def start_agent(self, node: Node, arguments: Sequence[str]) -> AgentProcess:
        self.asked.append((node.index, arguments[0]))
        return ScriptAgent(self.scripts[node.index])

    def collect(self, node: Node, directory: str) -> None: ...


def test_every_node_is_asked_once() -> None:
    cluster = ScriptCluster(ANSWER, ANSWER.replace("host1", "host2"))
    facts = describe_nodes(cluster, cluster.nodes(2))
    assert [node.host for node in facts] == ["host1", "host2"]
    assert cluster.asked == [(0, "describe"), (1, "describe")]


def test_nodes_that_share_a_host_are_asked_as_one() -> None:
    cluster = ScriptCluster(ANSWER, share_host=True)
    facts = describe_nodes(cluster, cluster.nodes(3))
    assert [node.host for node in facts] == ["host1"] * 3
    assert cluster.asked == [(0, "describe")]


def test_the_request_reaches_the_agent() -> None:
    told = "request = sys.stdin.read(); assert '\"with_memory\":true' in request, request; "
    cluster = ScriptCluster(told + ANSWER)
    assert describe_machine(cluster, with_memory=True).host == "host1"


def test_an_agent_that_never_answers_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "DESCRIBE_SECONDS", 0.5)
    cluster = ScriptCluster("time.sleep(30)")
    began = time.monotonic()
    with pytest.raises(NodeFailed, match=r"node 0 \(10\.0\.0\.0\) did not answer `describe` within 0\.5 s"):
        describe_machine(cluster)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("name", "method"), [("stdin", "write"), ("stdout", "read")])
def test_a_stream_of_a_plugin_that_raises_is_its_failure(
    monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    class Stream(io.BytesIO):
        pass

    def fail(*_args: object) -> None:
        raise KeyError("the plugin's own words")

    setattr(Stream, method, fail)
    agent = ScriptAgent("sys.exit(0)")
    setattr(agent, name, Stream())
    cluster = ScriptCluster()
    monkeypatch.setattr(cluster, "start_agent", lambda *_: agent)
    with pytest.raises(PluginFailed, match=rf"^{name} of the agent on node 0 \(10\.0\.0\.0\) failed: KeyError: "):
        describe_machine(cluster)
    assert agent.wait(60) is not None


def test_an_agent_that_fails_says_why() -> None:
    cluster = ScriptCluster("sys.stdin.read(); sys.exit('no plugins here')")
    with pytest.raises(NodeFailed, match=r"the agent on node 0 \(10\.0\.0\.0\) failed: no plugins here"):
        describe_machine(cluster)


def test_an_agent_that_fails_before_it_reads_the_request_says_why() -> None:
    cluster = ScriptCluster("sys.stdin.close(); os.close(0); sys.exit('cannot import flagperf')")
    with pytest.raises(NodeFailed, match="cannot import flagperf"):
        describe_nodes(cluster, cluster.nodes(1), requires=("x" * 100_000,))


def test_an_agent_that_dies_is_told_from_one_that_does_not_answer() -> None:
    cluster = ScriptCluster("sys.stdin.read(); os.kill(os.getpid(), 9)")
    for _ in range(5):
        with pytest.raises(NodeFailed) as caught:
            describe_machine(cluster)
        assert "did not answer" not in str(caught.value)


def test_much_on_stderr_does_not_stop_the_answer() -> None:
    cluster = ScriptCluster("sys.stderr.write('w' * 1_000_000); " + ANSWER)
    assert describe_machine(cluster).host == "host1"


def answering(answer: CheckAnswer) -> str:
    return f"sys.stdin.read(); sys.stdout.write({HELLO + msgspec.json.encode(answer).decode()!r})"


GOOD = CheckAnswer((DataFile("a", 1, "00"),))
CHECK = CheckRequest("m:f", None, {})


def test_the_first_nodes_files_are_recorded() -> None:
    cluster = ScriptCluster(answering(GOOD), answering(CheckAnswer()))
    assert check_nodes(cluster, cluster.nodes(2), CHECK) == GOOD


def test_the_problem_of_any_node_counts() -> None:
    cluster = ScriptCluster(answering(GOOD), answering(CheckAnswer(problem="nothing here")))
    assert check_nodes(cluster, cluster.nodes(2), CHECK).problem == "nothing here"


class RealAgentCluster(LocalCluster):
    """Real agents, which find the distribution of another flagperf before their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = folder / "flagperf-9.8.7.dist-info"
        other.mkdir()
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: flagperf\nVersion: 9.8.7\n")
        monkeypatch.setenv("PYTHONPATH", str(folder))


def ask_describe(cluster: Cluster) -> object:
    return describe_machine(cluster)


def ask_check(cluster: Cluster) -> object:
    return check_nodes(cluster, cluster.nodes(1), CHECK)


@pytest.mark.parametrize("ask", [ask_describe, ask_check])
def test_an_agent_of_another_version_is_refused_with_both_versions_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Cluster], object]
) -> None:
    cluster = RealAgentCluster(tmp_path, monkeypatch)
    with pytest.raises(NodeFailed) as caught:
        ask(cluster)
    assert str(caught.value) == (
        f"node 0 (127.0.0.1) has flagperf 9.8.7, this command has flagperf {core_version()}: both need the same "
        f"version; install flagperf=={core_version()} there, or flagperf==9.8.7 here"
    )
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("first_line", [FACTS, "not json", "[1]", "\\n"])
def test_an_agent_that_says_no_version_is_refused(first_line: str) -> None:
    cluster = ScriptCluster(f"sys.stdin.read(); print({first_line!r})")
    with pytest.raises(NodeFailed, match="did not send its flagperf version"):
        describe_machine(cluster)


def test_an_answer_of_another_shape_does_not_hide_the_other_version() -> None:
    hello = hello_line("9.8.7").decode()
    cluster = ScriptCluster(f"sys.stdin.read(); sys.stdout.write({hello!r} + 'a new format'); sys.exit(1)")
    with pytest.raises(NodeFailed, match=r"flagperf 9\.8\.7"):
        describe_machine(cluster)
