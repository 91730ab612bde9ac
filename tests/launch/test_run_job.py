"""From agents to an ending. The agents are real processes, with a few lines of Python in place of flagperf.agent."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from flagperf.api import AgentProcess, Cluster, LaunchCommand, Node, Setting
from flagperf.builtin.local import LocalCluster
from flagperf.errors import BundleFailed
from flagperf.events import Event, EventWriter, RunEnded, RunStarted, WorkersEnded, WorkersLaunched
from flagperf.launch import OnProgress, agents, run_job, signals_restored
from flagperf.launch import supervision as launch_supervision
from flagperf.messages import message
from flagperf.plugins import core_version
from flagperf.spec import Failure, Progress, WorkersEndedMessage, WorkersLaunchedMessage, hello_line
from flagperf.store.bundle import create_bundle, read_record
from flagperf.store.run import Ending
from flagperf.store.run import ended as ended_as
from run_builders import make_run

SILENT_HEAD = """
import os, select, sys, time
sys.stdin.readline(), sys.stdin.readline()
def say(text):
    print(text, flush=True)
def closed(seconds):
    return bool(select.select([sys.stdin], [], [], seconds)[0])
"""
HEAD = f"{SILENT_HEAD}say({hello_line(core_version()).decode().strip()!r})\n"


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """run_job leaves signals to whoever called it."""
    with signals_restored():
        yield


class ScriptAgent(AgentProcess):
    def __init__(self, script: str, flag: Path, head: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", head + script, str(flag)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def wait(self, timeout_seconds: float | None = None) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout_seconds)
        return None

    def kill(self) -> None:
        self.process.kill()


class ScriptCluster(Cluster):
    """One script per node."""

    name = "scripts"

    def __init__(self, flag: Path, *scripts: str, head: str = HEAD) -> None:
        self.flag, self.scripts, self.head = flag, scripts, head
        self.agents: list[ScriptAgent] = []

    def nodes(self, num_nodes: int) -> list[Node]:
        return [Node(index, "127.0.0.1") for index in range(num_nodes)]

    def start_agent(self, node: Node, arguments: Sequence[str]) -> AgentProcess:
        if not self.scripts[node.index]:
            raise FileNotFoundError(2, "No such file or directory", "ssh")
        self.agents.append(ScriptAgent(self.scripts[node.index], self.flag, self.head))
        return self.agents[-1]

    def collect(self, node: Node, directory: str) -> None:
        pass


class FinishedJob:
    def __init__(self, folder: Path, *scripts: str, timeout_seconds: float | None = None, head: str = HEAD) -> None:
        run = make_run("a")
        part = run.job.nodes[0]
        parts = tuple(msgspec.structs.replace(part, index=index) for index in range(len(scripts)))
        job = msgspec.structs.replace(run.job, nodes=parts, timeout_seconds=timeout_seconds)
        self.bundle = create_bundle(folder, msgspec.structs.replace(run, job=job), ())
        self.cluster = ScriptCluster(self.bundle / "events" / "parent.jsonl", *scripts, head=head)
        self.progress: list[Progress] = []
        self.ending = run_job(job, self.cluster, self.bundle, lambda _node, progress: self.progress.append(progress))
        self.codes = [agent.process.wait(300) for agent in self.cluster.agents]


def ended(failure: Failure | None) -> str:
    return msgspec.json.encode(WorkersEndedMessage(5, 0 if failure is None else 1, failure)).decode()


COMMAND = LaunchCommand(("python", "-m", "worker"), (Setting("OMP_NUM_THREADS", "2", "2 cores"),), ("SECRET",))
LAUNCHED = msgspec.json.encode(WorkersLaunchedMessage(1, COMMAND, "/opt/acme/env.sh")).decode()
PROGRESS = msgspec.json.encode(Progress(3, 9, None, None, None, None, "training")).decode()


def said(ending: Ending) -> tuple[str, str]:
    return ending.status, ending.reason


COMPLAINT = Failure("failed", message("tool.words", words="rank 0: RuntimeError: connection reset by peer"))
STOPPED = Failure("failed", message("tool.words", words="the launcher ended with -15"))
DEATH = Failure("failed", message("tool.words", words="rank 1: killed by SIGKILL"), died=True)


def test_messages_become_events_progress_and_an_ending(tmp_path: Path) -> None:
    finished = FinishedJob(tmp_path, f"say({LAUNCHED!r}); say({PROGRESS!r}); say({ended(None)!r})")
    assert finished.ending == Ending("succeeded")
    assert [progress.step for progress in finished.progress] == [3]
    events = read_record(finished.bundle).parent.events
    assert isinstance(events[0], RunStarted) and "job.precision" in events[0].planned
    assert isinstance(events[1], WorkersLaunched) and events[1].node_t_ns == 1
    assert (events[1].command, events[1].env_script) == (COMMAND, "/opt/acme/env.sh")
    assert isinstance(events[2], WorkersEnded)
    assert isinstance(events[-1], RunEnded) and events[-1].status == "succeeded"
    assert not list((finished.bundle / "logs").iterdir())


def test_a_node_that_complains_waits_for_the_one_that_knows_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_supervision, "CAUSE_SECONDS", 300.0)
    # The second agent finds its dead rank only after the parent has taken the first one's complaint.
    slow = f"""
while "workers_ended" not in open(sys.argv[1]).read():
    if closed(0.05): say({ended(STOPPED)!r}); sys.exit()
say({ended(DEATH)!r})
"""
    finished = FinishedJob(tmp_path, f"say({ended(COMPLAINT)!r})", slow)
    assert said(finished.ending) == ("failed", "rank 1: killed by SIGKILL")


def test_a_node_that_complains_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_supervision, "CAUSE_SECONDS", 0.1)
    patient = f"closed(300); say({ended(None)!r})"
    assert FinishedJob(tmp_path, f"say({ended(COMPLAINT)!r})", patient).ending == ended_as("failed", COMPLAINT.reason)


def test_the_time_limit_closes_stdin(tmp_path: Path) -> None:
    finished = FinishedJob(tmp_path, f"closed(300); say({ended(None)!r})", timeout_seconds=0.2)
    assert said(finished.ending) == ("timed_out", "not finished within 0.2 s")
    assert finished.codes == [0]


def test_an_agent_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_supervision, "STOP_SECONDS", 0.2)
    finished = FinishedJob(tmp_path, "time.sleep(600)", timeout_seconds=0.2)
    assert finished.ending.status == "timed_out"
    assert finished.codes == [-signal.SIGKILL]


@pytest.mark.parametrize("last", ["say('this is no message'); closed(300)", "sys.exit(3)"])
def test_an_agent_without_an_ending_is_quoted_and_its_words_are_kept(tmp_path: Path, last: str) -> None:
    finished = FinishedJob(tmp_path, f"print('one\\nOSError: no room', file=sys.stderr, flush=True); {last}")
    assert finished.ending.status == "failed"
    assert finished.ending.reason == (
        "the agent on node 0 ended without reporting how its workers ended; its last line: OSError: no room; "
        "see logs/agent-000.log"
    )
    assert (finished.bundle / "logs" / "agent-000.log").read_text() == "one\nOSError: no room\n"


def test_an_agent_of_another_version_ends_the_run_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real agent, which refuses this command as well."""
    monkeypatch.setattr(agents, "core_version", lambda: "9.8.7")
    run = make_run("a")
    bundle = create_bundle(tmp_path, run, ())
    ending = run_job(run.job, LocalCluster(), bundle, lambda _node, _progress: None)
    address = run.job.nodes[0].address
    assert said(ending) == (
        "failed",
        f"node 0 ({address}) has flagperf {core_version()}, this command has flagperf 9.8.7: both need the same "
        f"version; install flagperf==9.8.7 there, or flagperf=={core_version()} here",
    )
    assert "the command that started it has flagperf 9.8.7" in (bundle / "logs" / "agent-000.log").read_text()
    assert not list((bundle / "samples").iterdir())


def test_an_agent_of_another_version_is_the_cause_where_another_agent_is_silent(tmp_path: Path) -> None:
    other = f"os.write(1, {hello_line('9.8.7')!r}); closed(300)"
    finished = FinishedJob(tmp_path, "closed(300)", other, head=SILENT_HEAD)
    assert finished.ending.status == "failed"
    assert finished.ending.reason.startswith("node 1 (") and "has flagperf 9.8.7" in finished.ending.reason


def test_an_agent_that_cannot_be_started_ends_the_run_and_those_that_were(tmp_path: Path) -> None:
    finished = FinishedJob(tmp_path, f"closed(300); say({ended(None)!r})", "")
    assert finished.ending.status == "failed"
    assert "the agent of node 1 was not started" in finished.ending.reason and "ssh" in finished.ending.reason
    assert finished.codes == [0]


def test_an_interrupt_while_agents_work_stops_them(tmp_path: Path) -> None:
    def interrupt(_node: int, _progress: Progress) -> None:
        raise KeyboardInterrupt("SIGTERM")

    cluster, ending = start_job(tmp_path, interrupt)
    assert said(ending) == ("interrupted", "stopped by SIGTERM")
    assert cluster.agents[0].process.wait(300) == 0


def test_a_bundle_that_cannot_be_written_stops_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = EventWriter.write

    def full_disk(writer: EventWriter, event: Event) -> None:
        if isinstance(event, WorkersLaunched):
            raise OSError(28, "No space left on device")
        write(writer, event)

    monkeypatch.setattr(EventWriter, "write", full_disk)
    started: list[ScriptCluster] = []
    with pytest.raises(BundleFailed, match="No space left on device"):
        start_job(tmp_path, lambda _node, _progress: None, started)
    assert started[0].agents[0].process.wait(300) == 0


def start_job(
    folder: Path, on_progress: OnProgress, started: list[ScriptCluster] | None = None
) -> tuple[ScriptCluster, Ending]:
    run = make_run("a")
    bundle = create_bundle(folder, run, ())
    cluster = ScriptCluster(bundle, f"say({LAUNCHED!r}); say({PROGRESS!r}); closed(300); say({ended(None)!r})")
    if started is not None:
        started.append(cluster)
    return cluster, run_job(run.job, cluster, bundle, on_progress)


def test_a_stream_of_a_plugin_that_raises_is_an_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin(io.BytesIO):
        pass

    def fail(*_args: object) -> None:
        raise KeyError("the plugin's own words")

    Stdin.write = fail  # type: ignore[method-assign,assignment]
    initialize = ScriptAgent.__init__

    def with_bad_stdin(self: ScriptAgent, script: str, flag: Path, head: str) -> None:
        initialize(self, script, flag, head)
        self.real_stdin, self.stdin = self.stdin, Stdin()  # type: ignore[attr-defined]

    monkeypatch.setattr(ScriptAgent, "__init__", with_bad_stdin)
    monkeypatch.setattr(sys.modules[run_job.__module__], "STOP_SECONDS", 0.2)
    job = FinishedJob(tmp_path, "sys.exit('gone')")
    assert job.ending.status == "failed"
    told = 'stdin of the agent on node 0 (127.0.0.1) failed: KeyError: "the plugin\'s own words"'
    assert told in job.ending.reason
