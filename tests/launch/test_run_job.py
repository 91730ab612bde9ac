"""From agents to an ending. The agents are real processes, with a few lines of Python in place of flagperf.agent."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_scripts import GREETING, ScriptAllocation, StandingTime, channels
from flagperf import version
from flagperf.api import Allocation, LaunchCommand, Node, Setting
from flagperf.builtin.ssh import LocalAllocation
from flagperf.bundle.bundle import create_bundle, read_record
from flagperf.bundle.run_record import Ending
from flagperf.bundle.run_record import ended as ended_as
from flagperf.errors import BundleFailed
from flagperf.event_files import EventWriter
from flagperf.events import Event, RunEnded, RunStarted, WorkersEnded, WorkersLaunched
from flagperf.fleet import channel as fleet_channel
from flagperf.fleet.fleet import open_fleet
from flagperf.fleet.run_job import run_job
from flagperf.fleet.signals import signals_restored
from flagperf.fleet.supervision import CAUSE_SECONDS, STOP_SECONDS, OnProgress
from flagperf.messages import message, render
from flagperf.spec.protocol import (
    Failure,
    FilePart,
    FilesComplete,
    Progress,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    hello_line,
)
from run_builders import make_run

TELL = """
import sys
def tell(text): data(text + "\\n")
def close(code=0, error=""): say("ended", code=code, error=error)
def record():
    first, num_ranks = order["first_rank"], len(order["job"]["nodes"][0]["devices"])
    for rank in range(first, first + num_ranks):
        open(order["directory"] + f"/events/rank-{rank:05d}.jsonl", "w").close()
    open(order["directory"] + f"/samples/node-{order['node_index']:03d}.jsonl", "w").close()
verb, order = asked()
"""


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """run_job leaves signals to whoever called it."""
    with signals_restored():
        yield


class FinishedJob:
    """Scripts follow a greeting and the work order; nodes are this machine unless it is said. No time passes for the
    command, unless the test lets it."""

    def __init__(
        self,
        folder: Path,
        *scripts: str,
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
        allocation: Allocation | None = None,
        share_host: bool = True,
        waiting: StandingTime | None = None,
    ) -> None:
        greeting = f"FLAG = {str(folder / 'a/events/parent.jsonl')!r}\n{GREETING}{TELL}"
        self.allocation = allocation or ScriptAllocation(*scripts, share_host=share_host, greeting=greeting)
        run = make_run("a")
        nodes = (msgspec.structs.replace(run.job.nodes[0], index=index) for index in range(len(self.allocation.nodes)))
        job = msgspec.structs.replace(run.job, nodes=tuple(nodes), timeout_seconds=timeout_seconds)
        self.bundle = create_bundle(folder, msgspec.structs.replace(run, job=job), ())
        self.progress: list[Progress] = []
        progress = on_progress or (lambda _node, each: self.progress.append(each))
        with open_fleet(self.allocation, waiting=waiting or StandingTime()) as opened:
            try:
                self.ending = run_job(job, opened, self.bundle, progress)
            finally:
                STARTED[:] = channels(opened)
        self.codes = [each.process.returncode for each in sorted(STARTED, key=lambda each: each.index)]


STARTED: list[Any] = []
"""The channels of the last job, also where it raised."""


def ended(failure: Failure | None) -> str:
    return msgspec.json.encode(WorkersEndedMessage(5, 0 if failure is None else 1, failure)).decode()


COMMAND = LaunchCommand(("python", "-m", "worker"), (Setting("OMP_NUM_THREADS", "2", "2 cores"),), ("SECRET",))
LAUNCHED = msgspec.json.encode(WorkersLaunchedMessage(1, COMMAND, "/opt/acme/env.sh")).decode()
PROGRESS = msgspec.json.encode(Progress(3, 9, None, None, None, None, "training")).decode()


COMPLAINT = Failure("failed", message("tool.words", words="rank 0: RuntimeError: connection reset by peer"))
STOPPED = Failure("failed", message("tool.words", words="the launcher ended with -15"))
DEATH = Failure("failed", message("tool.words", words="rank 1: killed by SIGKILL"), died=True)


def test_messages_become_events_progress_and_an_ending(tmp_path: Path) -> None:
    finished = FinishedJob(
        tmp_path, f"tell({LAUNCHED!r}); tell({PROGRESS!r}); record(); tell({ended(None)!r}); close(); rest()"
    )
    assert finished.ending == Ending("succeeded")
    assert [progress.step for progress in finished.progress] == [3]
    events = read_record(finished.bundle).parent.events
    assert isinstance(events[0], RunStarted) and "job.precision" in events[0].planned
    assert isinstance(events[1], WorkersLaunched) and events[1].node_t_ns == 1
    assert (events[1].command, events[1].env_script) == (COMMAND, "/opt/acme/env.sh")
    assert isinstance(events[2], WorkersEnded)
    assert isinstance(events[-1], RunEnded) and events[-1].status == "succeeded"
    assert not list((finished.bundle / "logs").iterdir())


def test_every_node_gets_its_own_part_of_the_job(tmp_path: Path) -> None:
    check = (
        "nodes = order['job']['nodes']\n"
        "assert verb == 'run' and [node['index'] for node in nodes] == [INDEX] == [order['node_index']], order\n"
        "assert (order['num_nodes'], order['world_size'], order['first_rank']) == (2, 2, INDEX), order\n"
        f"assert order['directory'] == {str(tmp_path / 'a')!r}, order\n"
        f"record(); tell({ended(None)!r}); close(); rest()"
    )
    finished = FinishedJob(tmp_path, *(check.replace("INDEX", str(index)) for index in range(2)))
    assert finished.ending == Ending("succeeded")


PARENT = 'order["directory"] + "/events/parent.jsonl"'


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (f"os.remove({PARENT})", "parent.jsonl: No such file or directory"),
        (f"os.truncate({PARENT}, 0)", "parent.jsonl has 1 events, 2 were written"),
        (f"open({PARENT}, 'ab').write(b'garbage\\n')", "parent.jsonl: line 2 is not a valid event: "),
        ("os.remove(order['directory'] + '/samples/node-000.jsonl')", "samples/node-000.jsonl is missing"),
    ],
)
def test_a_file_that_somebody_changes_during_the_run_makes_it_a_failed_one(
    tmp_path: Path, damage: str, why: str
) -> None:
    finished = FinishedJob(tmp_path, f"import os; record(); {damage}; tell({ended(None)!r}); close(); rest()")
    assert finished.ending.status == "failed"
    assert "cannot be read" in finished.ending.reason and why in finished.ending.reason


def test_a_message_that_comes_in_pieces_is_one(tmp_path: Path) -> None:
    line = f"{PROGRESS}\n{ended(None)}\n"
    finished = FinishedJob(tmp_path, f"for each in {line!r}: data(each)\nrecord(); close(); rest()")
    assert finished.ending == Ending("succeeded") and len(finished.progress) == 1


COMPLAINS = f"tell({ended(COMPLAINT)!r}); close(3); rest()"
LEAVES = f"say('leaving', signal='SIGTERM'); tell({ended(STOPPED)!r}); close(3); rest()"
STOPS = f"assert told(300); tell({ended(STOPPED)!r}); close(3); rest()"
FINDS_ITS_DEAD_RANK_LATER = f"""
while "workers_ended" not in open(FLAG).read():
    if told(0.05): tell({ended(STOPPED)!r}); close(3); sys.exit()
tell({ended(DEATH)!r}); close(3); rest()
"""
"""The parent has taken the complaint of the other by then."""


@pytest.mark.parametrize(
    ("scripts", "reason"),
    [
        ((COMPLAINS, FINDS_ITS_DEAD_RANK_LATER), "node 1: rank 1: killed by SIGKILL"),
        (
            (STOPS, "sys.exit('reboot')"),
            "node 1 was lost: the agent on node 1 (host1) ended: reboot; see logs/agent-001.log",
        ),
        ((LEAVES,), "the agent on node 0 was told to stop by SIGTERM"),
    ],
)
def test_the_node_that_knows_the_cause_is_named_and_the_others_are_stopped(
    tmp_path: Path, scripts: tuple[str, ...], reason: str
) -> None:
    finished = FinishedJob(tmp_path, *scripts)
    assert (finished.ending.status, finished.ending.reason) == ("failed", reason)
    assert finished.codes[0] == 0


def test_a_node_that_complains_does_not_wait_for_ever(tmp_path: Path) -> None:
    def has_complained() -> bool:
        return "workers_ended" in (tmp_path / "a/events/parent.jsonl").read_text()

    patient = f"told(300); tell({ended(None)!r}); close(); rest()"
    waiting = StandingTime((CAUSE_SECONDS, has_complained))
    finished = FinishedJob(tmp_path, COMPLAINS, patient, waiting=waiting)
    assert finished.ending == ended_as("failed", message("ending.on_node", node="0", what=COMPLAINT.reason))


def test_an_agent_that_does_not_stop_is_given_up_and_killed(tmp_path: Path) -> None:
    at_work = tmp_path / "at_work"
    waiting = StandingTime((90.0, at_work.exists), (90.0 + STOP_SECONDS, lambda: True))
    script = f"touch({str(at_work)!r}); time.sleep(600)"
    finished = FinishedJob(tmp_path, script, timeout_seconds=90.0, waiting=waiting)
    assert finished.ending.status == "timed_out"
    assert finished.codes == [-signal.SIGTERM]


COMPLAIN = "print('one\\nOSError: no room', file=sys.stderr, flush=True)"


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("tell('this is no message'); rest()", "it sent an invalid message (JSON is malformed: "),
        ("sys.exit(3)", "the agent on node 0 (host0) ended: OSError: no room; "),
        ("close(1, 'Traceback\\nOSError: no memory'); rest()", "OSError: no memory; "),
        ("close(-9); rest()", "killed by SIGKILL"),
    ],
)
def test_a_node_without_an_ending_is_quoted_and_its_words_are_kept(tmp_path: Path, last: str, why: str) -> None:
    finished = FinishedJob(tmp_path, f"{COMPLAIN}; {last}")
    assert finished.ending.status == "failed"
    assert finished.ending.reason.startswith(f"node 0 was lost: {why}")
    assert finished.ending.reason.endswith("; see logs/agent-000.log")
    assert (finished.bundle / "logs" / "agent-000.log").read_text() == "one\nOSError: no room\n"


def test_what_the_cluster_knows_of_an_agent_that_was_told_to_stop_is_said(tmp_path: Path) -> None:
    class Slurm(ScriptAllocation):
        def explain(self, node: Node) -> str:
            return f"Slurm says: job 7 on {node.name} was cancelled"

    explained = FinishedJob(tmp_path, allocation=Slurm(LEAVES, share_host=True, greeting=GREETING + TELL))
    told = "the agent on node 0 was told to stop by SIGTERM"
    assert explained.ending.reason == f"{told}: Slurm says: job 7 on host0 was cancelled"


def test_an_agent_of_another_version_ends_the_run_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real agent, which refuses this command as well."""
    monkeypatch.setattr(fleet_channel, "version", lambda: "9.8.7")
    finished = FinishedJob(tmp_path, allocation=LocalAllocation(1))
    assert (finished.ending.status, finished.ending.reason) == (
        "failed",
        f"node 0 (127.0.0.1) has flagperf {version()}, this command has flagperf 9.8.7: both need the same "
        f"version; install flagperf==9.8.7 there, or flagperf=={version()} here",
    )
    assert b"the command that started it has flagperf 9.8.7" in STARTED[0].errors
    assert not list((finished.bundle / "samples").iterdir())


@pytest.mark.parametrize(
    ("scripts", "words"),
    [
        # one of another version is the cause where another cannot be started
        (("", f"greet({hello_line('9.8.7')!r}); rest()"), ["node 1 (host1) has flagperf 9.8.7"]),
        ((f"{GREETING}asked(); sys.exit('it was asked')", ""), ["the agent of node 1 was not started", "/no/such/ssh"]),
    ],
)
def test_an_agent_that_cannot_be_used_ends_the_run_before_any_other_works(
    tmp_path: Path, scripts: tuple[str, str], words: list[str]
) -> None:
    finished = FinishedJob(tmp_path, allocation=ScriptAllocation(*scripts, share_host=True, greeting=""))
    assert finished.ending.status == "failed" and all(word in finished.ending.reason for word in words)
    assert finished.codes == [0]


WORKING = f"tell({LAUNCHED!r}); tell({PROGRESS!r}); assert told(300); tell({ended(None)!r}); close(); rest()"


def test_a_bundle_that_cannot_be_written_stops_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = EventWriter.write

    def full_disk(writer: EventWriter, event: Event) -> None:
        if isinstance(event, WorkersLaunched):
            raise OSError(28, "No space left on device")
        write(writer, event)

    monkeypatch.setattr(EventWriter, "write", full_disk)
    with pytest.raises(BundleFailed, match="No space left on device"):
        FinishedJob(tmp_path, WORKING.replace("rest()", "sys.exit(5)"))
    assert [each.process.returncode for each in STARTED] == [5]


# --- parts of the bundle ----------------------------------------------------------------------------------------------


def sending(files: dict[str, str], ending: str) -> str:
    """A node that sends these files, and whose run then ends so."""
    parts = [FilePart(name, 0, text.encode()) for name, text in files.items()]
    complete = FilesComplete({name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()})
    lines = [msgspec.json.encode(each).decode() for each in (*parts, complete)]
    tell_parts, tell_complete = "; ".join(f"tell({line!r})" for line in lines[:-1]), f"tell({lines[-1]!r})"
    return f"assert order['directory'] == ''\n{tell_parts}\n{ending.replace('COMPLETE', tell_complete)}\nrest()"


FIRST, SECOND = ({f"events/rank-0000{rank}.jsonl": "", f"logs/rank-0000{rank}.log": "words"} for rank in range(2))


def test_what_nodes_send_is_kept_also_of_one_that_is_lost(tmp_path: Path) -> None:
    stopped = sending(FIRST, f"assert told(300); tell({ended(STOPPED)!r}); COMPLETE; close(3)")
    lost = sending(SECOND, "sys.exit('gone')")
    finished = FinishedJob(tmp_path, stopped, lost, share_host=False)
    assert finished.ending.reason.startswith("node 1 (host1) was lost: the agent on node 1 (host1) ended: gone")
    assert [(finished.bundle / f"logs/rank-0000{rank}.log").read_text() for rank in range(2)] == ["words", "words"]


def test_a_file_that_is_not_the_nodes_own_ends_the_run_and_is_not_written(tmp_path: Path) -> None:
    good = sending(FIRST, f"told(300); tell({ended(None)!r}); COMPLETE; close()")
    bad = sending({**SECOND, "run.json": "{}"}, "told(300)")
    finished = FinishedJob(tmp_path, good, bad, share_host=False)
    assert finished.ending.reason.startswith(
        "node 1 (host1) was lost: it sent 'run.json', which is not a file of its own"
    )
    assert (finished.bundle / "run.json").read_text() != "{}"


@pytest.mark.parametrize(
    ("files", "last", "reason"),
    [
        (FIRST, f"tell({ended(None)!r}); close()", "what node 0 recorded was not collected: it did not send all of it"),
        ({}, f"tell({ended(DEATH)!r}); close(3)", "rank 1: killed by SIGKILL"),  # goes before parts that are missing
    ],
)
def test_a_node_that_does_not_send_all_fails_the_run(
    tmp_path: Path, files: dict[str, str], last: str, reason: str
) -> None:
    finished = FinishedJob(tmp_path, sending(files, last), share_host=False)
    assert (finished.ending.status, finished.ending.reason) == ("failed", reason)


def test_the_first_error_of_several_nodes_names_node_and_host(tmp_path: Path) -> None:
    stopped = sending(FIRST, f"assert told(300); tell({ended(STOPPED)!r}); COMPLETE; close(3)")
    failed = sending(SECOND, f"tell({ended(DEATH)!r}); COMPLETE; close(3)")
    finished = FinishedJob(tmp_path, stopped, failed, share_host=False)
    assert (finished.ending.status, finished.ending.reason) == ("failed", "node 1 (host1): rank 1: killed by SIGKILL")
    assert (
        finished.ending.message and render(finished.ending.message, "zh") == "节点1 (host1)：rank 1: killed by SIGKILL"
    )
