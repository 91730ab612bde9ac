"""All agents of an allocation, served by one loop. The agents are scripts, or real ones on this machine."""

from __future__ import annotations

import os
import re
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ScriptAllocation, StandingTime, answering, channels
from flagperf import version
from flagperf.api import Node
from flagperf.builtin.ssh import LocalAllocation
from flagperf.errors import BadInput, NodeFailed, PluginFailed
from flagperf.fleet.channel import KILL_SECONDS
from flagperf.fleet.fleet import END_SECONDS, EXPLAIN_SECONDS, START_SECONDS, Answers, Fleet, combined, open_fleet
from flagperf.spec.protocol import (
    BEAT_SECONDS,
    SILENT_SECONDS,
    RendezvousAnswer,
    RendezvousRequest,
    VersionMismatch,
    hello_line,
)
from live_processes import is_pid_alive

HELLO = hello_line(version())
NOW = f"flagperf {version()}"


def ask(allocation: ScriptAllocation, answer: Any = int, waiting: StandingTime | None = None) -> Answers[Any]:
    """Ask all nodes. Nobody is late, unless the test lets time pass."""
    with open_fleet(allocation, waiting=waiting or StandingTime()) as opened:
        return opened.ask_all("describe", {index: {} for index in range(len(allocation.nodes))}, answer, 60.0)


def why(*scripts: str, waiting: StandingTime | None = None, **allocation: Any) -> str:
    """Return why the last node has no answer."""
    return str(ask(ScriptAllocation(*scripts, **allocation), waiting=waiting).failed[len(scripts) - 1])


class Explaining(ScriptAllocation):
    def explain(self, node: Node) -> str:
        return f"Slurm says that {node.name} is down"


# --- starting ---------------------------------------------------------------------------------------------------------


def test_no_more_agents_start_at_once_than_the_cluster_allows() -> None:
    class Counting(ScriptAllocation):
        """Counts at each start those that have not greeted, with the new one."""

        opened: Fleet
        counts: list[int]

        def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
            self.counts.append(1 + sum(not channel.is_greeted for channel in channels(self.opened)))
            return super().agent_command(node, command)

    allocation = Counting(*["rest()"] * 7)
    allocation.max_starts, allocation.counts = 2, []
    with open_fleet(allocation, waiting=StandingTime()) as allocation.opened:
        assert allocation.opened.start(range(7)) == {}
    assert len(allocation.counts) == 7 and max(allocation.counts) == 2


def test_an_agent_is_started_once_for_several_questions_and_anew_where_it_has_gone() -> None:
    allocation = ScriptAllocation(answering(1), "asked(); answer('1'); sys.exit()")
    with open_fleet(allocation, waiting=StandingTime()) as opened:
        questions = [opened.ask_all("describe", {0: {}}, int, 60.0) for _ in range(2)]
        assert [each.all() for each in questions] == [[1], [1]] and allocation.started == [0]
        for _ in range(2):
            opened.ask_all("describe", {1: {}}, int, 60.0)
            while 1 in opened.reached():
                opened.poll(1.0)
        assert allocation.started == [0, 1, 1]
        started = channels(opened)
        assert len(started) == 3
    assert all(channel.process.returncode == 0 for channel in started)


def test_an_agent_that_goes_while_another_starts_is_named_too(tmp_path: Path) -> None:
    starts, pid = str(tmp_path / "starts"), str(tmp_path / "pid")
    allocation = ScriptAllocation(f"note_pid({pid!r}); asked(); answer('1'); wait_for({starts!r})", answering(2))
    with open_fleet(allocation, waiting=StandingTime()) as opened:
        assert opened.ask_all("describe", {0: {}}, int, 60.0).all() == [1]
        allocation.greeting = f"touch({starts!r}); wait_until_lost({pid!r})\n{allocation.greeting}"
        found = opened.ask_all("describe", {0: {}, 1: {}}, int, 60.0)
    assert found.given == {1: 2}
    assert str(found.failed[0]) == "the agent on node 0 (host0) ended (exit code 0)"


def test_what_a_login_shell_prints_before_the_hello_is_skipped() -> None:
    junk = "os.write(1, b'Welcome to host0!\\n\\n{\"a\": 1}\\n\\xff\\nyou have mail: ')\n"
    allocation = ScriptAllocation(answering(5))
    allocation.greeting = junk + allocation.greeting
    assert ask(allocation).all() == [5]


def test_a_node_without_an_agent_says_why() -> None:
    assert why("") == (
        "the agent on node 0 (host0) cannot be started: [Errno 2] No such file or directory: '/no/such/ssh'"
    )
    unreachable = "node 0 (host0) cannot be reached, or has no such flagperf: "
    assert why("sys.exit('a\\nssh: no route\\nto host0')", greeting="") == f"{unreachable}ssh: no route; to host0"
    assert why("sys.exit(127)", greeting="") == f"{unreachable}exit code 127"
    assert (
        why("os.dup2(os.open(os.devnull, os.O_RDONLY), 0); sys.exit('cannot import flagperf')", greeting="")
        == f"{unreachable}cannot import flagperf"
    )


def test_a_cluster_that_fails_for_one_node_leaves_the_others_their_agents() -> None:
    class Failing(ScriptAllocation):
        error: Exception = PluginFailed("adapter acme 1.0 failed: agent_command: KeyError: 'host0'")

        def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
            if node.name == "host0":
                raise self.error
            return super().agent_command(node, command)

    found = ask(Failing("rest()", answering(5)))
    assert found.given == {1: 5}
    assert str(found.failed[0]) == str(Failing.error)
    Failing.error = BadInput("cannot carry '/a!b'")  # so it is with all of them
    with pytest.raises(BadInput, match="cannot carry '/a!b'"):
        ask(Failing("rest()", "rest()"))


def test_what_is_no_hello_and_what_follows_one_of_another_version_is_not_read() -> None:
    assert "did not send its flagperf version" in why("os.write(1, b'x' * 3_000_000); rest()", greeting="")
    other = f"greet({hello_line('9.8.7')!r}); os.write(1, b'a new format'); sys.exit('new words')"
    assert why(other, greeting="").startswith(f"node 0 (host0) has flagperf 9.8.7, this command has {NOW}: both need")


def test_a_node_that_never_greets_is_given_up(tmp_path: Path) -> None:
    greeted = tmp_path / "greeted"
    good = f"greet({HELLO!r}); touch({str(greeted)!r})\n{answering(5)}"
    allocation = ScriptAllocation(good, "time.sleep(600)", greeting="", share_host=True)
    found = ask(allocation, waiting=StandingTime((START_SECONDS + 1, greeted.exists)))
    assert found.given == {0: 5}
    assert str(found.failed[1]) == "node 1 (host1) did not answer within 60 s"


def test_the_limit_of_open_files_is_raised_as_far_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    for num_nodes in (100, 900, 5000):
        with open_fleet(ScriptAllocation(*[""] * num_nodes)):
            pass
    assert asked == [(2956, 4096), (4096, 4096)]


# --- asking -----------------------------------------------------------------------------------------------------------


def test_every_node_that_has_no_answer_is_named_and_the_answers_of_the_others_are_kept(tmp_path: Path) -> None:
    other = f"greet({hello_line('9.8.7')!r}); rest()"
    answered = f"touch({str(tmp_path)!r} + f'/{{os.getpid()}}'); rest()"
    good = f"greet({HELLO!r}); asked(); answer('5'); {answered}"
    scripts = (
        good,
        f"greet({HELLO!r}); asked(); answer('', 1, 'no disk'); {answered}",
        f"greet({HELLO!r}); rest()",
        other,
        "",
        f"greet({HELLO!r}); asked(); answer('\"text\"'); {answered}",
        good,
    )
    waiting = StandingTime((60.0, lambda: len(list(tmp_path.iterdir())) == 4))
    found = ask(ScriptAllocation(*scripts, greeting="", share_host=True), waiting=waiting)
    assert found.given == {0: 5, 6: 5}
    assert isinstance(found.failed[3], VersionMismatch)
    with pytest.raises(NodeFailed) as caught:
        found.all()
    words = str(caught.value)
    assert words.startswith(
        "5 nodes failed: the agent on node 1 (host1) failed: no disk; node 2 (host2) did not answer"
    )
    assert re.findall(r"node (\d) \(", words) == list("12345")


def test_a_message_of_many_nodes_is_short() -> None:
    failed = {index: NodeFailed(f"node {index} is away") for index in range(12)}
    parts = str(combined(failed)).split("; ")
    assert parts[0] == "12 nodes failed: node 0 is away" and parts[-1] == "and 2 more nodes" and len(parts) == 11
    assert str(combined({7: failed[7]})) == "node 7 is away"


def test_a_node_that_is_lost_after_its_answer_does_not_end_the_wait_for_the_others(tmp_path: Path) -> None:
    """The second answers only once the first is lost."""
    pid = str(tmp_path / "pid")
    first = f"note_pid({pid!r}); asked(); answer('1'); sys.exit()"
    found = ask(ScriptAllocation(first, f"asked(); wait_until_lost({pid!r}); answer('2'); rest()"))
    assert found.given == {0: 1, 1: 2} and set(found.failed) == {0}


def test_a_node_that_goes_while_another_is_asked_is_not_the_failure_of_that_one(tmp_path: Path) -> None:
    asked, pid = str(tmp_path / "asked"), str(tmp_path / "pid")
    first = f"asked(); touch({asked!r}); wait_until_lost({pid!r}); answer('1'); rest()"
    allocation = ScriptAllocation(first, f"note_pid({pid!r}); wait_for({asked!r})")
    with open_fleet(allocation, waiting=StandingTime()) as opened:
        assert opened.start([0, 1]) == {}
        assert opened.ask_all("describe", {0: {}}, int, 60.0).all() == [1]
        assert opened.reached() == [0]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os.kill(os.getpid(), 9)", "ended (killed by SIGKILL, often because"),
        ("sys.exit(4)", "ended (exit code 4)"),
        ("sys.stderr.write('x' * 3_000_000 + '\\nlost the disk\\n'); sys.exit(4)", "ended: lost the disk"),
        ("os.write(1, b'Segmentation fault\\n'); rest()", "sent an invalid message (JSON is malformed"),
        ("os.write(1, b'\\xff' * 3_000_000); rest()", "sent an invalid message"),
        ("say('data', size=-1); rest()", "sent an invalid message (Expected `int` >= 0"),
        ("say('dance'); rest()", "sent an invalid message (Invalid value 'dance'"),
    ],
)
def test_an_agent_that_ends_or_raves_is_lost_with_what_is_known(end: str, words: str) -> None:
    assert why(f"asked(); {end}").startswith(f"the agent on node 0 (host0) {words}")


def test_a_cluster_says_what_it_knows_of_lost_nodes_and_is_not_asked_for_ever() -> None:
    waiting = StandingTime()

    class Slow(Explaining):
        def explain(self, node: Node) -> str:
            waiting.seconds += 0.6 * EXPLAIN_SECONDS
            return super().explain(node)

    with open_fleet(Slow(*["asked(); sys.exit(4)"] * 8), waiting=waiting) as opened:
        found = opened.ask_all("describe", {index: {} for index in range(8)}, int, 60.0)
        assert waiting.seconds == 1.2 * EXPLAIN_SECONDS
        explained = {index for index, error in found.failed.items() if "Slurm says" in str(error)}
        assert len(found.failed) == 8 and len(explained) == 2
        for index in explained:
            ending = f"(host{index}) ended (exit code 4). Slurm says that host{index} is down"
            assert str(found.failed[index]) == f"the agent on node {index} {ending}"
        assert {index for index in range(8) if opened.explained(index)} == explained  # what was said is kept


def test_an_agent_that_somebody_else_has_told_to_stop_is_named() -> None:
    """While it is asked, and before."""
    leaving = "asked(); say('leaving', signal='SIGTERM'); answer('', -9); rest()"
    told = "the agent on node 0 (host0) was told to stop by SIGTERM. Slurm says that host0 is down"
    assert str(ask(Explaining(leaving, answering(5))).failed[0]) == told
    answers_first = "asked(); answer('1'); say('leaving', signal='SIGTERM'); rest()"
    with open_fleet(Explaining(answers_first, answering(5)), waiting=StandingTime()) as opened:
        assert opened.ask_all("describe", {0: {}, 1: {}}, int, 60.0).given == {0: 1, 1: 5}
        while 0 not in opened._leaving:
            opened.poll(1.0)
        found = opened.ask_all("describe", {0: {}, 1: {}}, int, 60.0)
        assert str(found.failed[0]) == told and found.given == {1: 5}


def test_a_lost_node_whose_stderr_stays_open_is_not_waited_for(tmp_path: Path) -> None:
    """As behind a shared connection of ssh, whose master keeps it. Here it is the watchdog, still at work."""
    cleaned = tmp_path / "cleaned"

    class CleanedWhileItWaits(StandingTime):
        def sleep(self, seconds: float) -> None:
            cleaned.touch()
            super().sleep(seconds)

    holder = f"(os.close(1), wait_for({str(cleaned)!r}), os.write(2, b'\\nremoved a folder'))"
    script = f"asked(); sys.stderr.write('reset by peer'); sys.stderr.flush(); os.fork() or {holder}; os._exit(4)"
    assert why(script) == "the agent on node 0 (host0) ended: reset by peer"
    waiting = CleanedWhileItWaits()
    assert why(script, waiting=waiting, share_host=True) == "the agent on node 0 (host0) ended: removed a folder"


def test_an_answer_arrives_whole_however_it_is_cut_beside_much_on_stderr() -> None:
    cut = "for part in ('\"', 'x' * 700_000, 'y' * 300_000, '\"'): data(part)"
    script = f"sys.stderr.write('w' * 3_000_000); asked()\n{cut}\nsay('ended', code=0)\nrest()"
    assert ask(ScriptAllocation(script), answer=str).all() == ["x" * 700_000 + "y" * 300_000]


def test_a_node_that_says_nothing_is_lost_unless_it_is_this_machine(tmp_path: Path) -> None:
    beat, told = tmp_path / "beat", tmp_path / "told"
    script = f"asked(); data('at work'); wait_for({str(beat)!r}); say('beat'); touch({str(told)!r}); rest()"
    for share_host in (False, True):
        waiting = StandingTime()
        with open_fleet(ScriptAllocation(script, share_host=share_host), waiting=waiting) as opened:
            opened.start([0])
            opened.request(0, "run", {})
            while not opened.poll(1.0):
                pass
            waiting.seconds = SILENT_SECONDS
            assert opened.poll(0.0) == []
            beat.touch()
            while not told.exists():
                assert opened.poll(0.01) == []
            assert opened.poll(0.0) == []  # it has read the beat now
            waiting.seconds = 2 * SILENT_SECONDS
            assert opened.poll(0.0) == []
            waiting.seconds += 1.0
            lost = [str(event.lost) for event in opened.poll(0.0)]
        assert lost == ([] if share_host else ["nothing was heard from node 0 (host0) for 20 s"])
        beat.unlink()
        told.unlink()


@pytest.mark.parametrize(("share_host", "heard"), [(False, "beat"), (True, "stop")])
def test_the_command_beats_only_towards_other_machines(share_host: bool, heard: str) -> None:
    waiting = StandingTime()
    allocation = ScriptAllocation("asked(); data('at work'); data(stdin.readline()); rest()", share_host=share_host)
    with open_fleet(allocation, waiting=waiting) as opened:
        opened.start([0])
        opened.request(0, "run", {})
        while not opened.poll(1.0):
            pass
        waiting.seconds = BEAT_SECONDS
        events = opened.poll(0.0)
        opened.stop(0)
        while not events:
            events = opened.poll(1.0)
    assert events[0].content == f'{{"type":"{heard}"}}\n'.encode()


# --- ending -----------------------------------------------------------------------------------------------------------


def test_closing_leaves_no_process_whatever_the_agents_do() -> None:
    """The second does not see the end of its stdin, the third ignores SIGTERM too; the last waits for its reader."""
    scripts = (
        "asked(); data('x'); rest()",
        "asked(); data('x'); time.sleep(600)",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); asked(); data('x'); time.sleep(600)",
        "asked()\nwhile True: data('x' * 100_000)",
    )
    started: list[Any] = []

    def have_gone(*indexes: int) -> bool:
        return not any(is_pid_alive(channel.process.pid) for channel in started if channel.index in indexes)

    waiting = StandingTime(
        (END_SECONDS, lambda: bool(started) and have_gone(0)),
        (END_SECONDS + KILL_SECONDS, lambda: have_gone(0, 1, 3)),
    )
    with open_fleet(ScriptAllocation(*scripts, share_host=True), waiting=waiting) as opened:
        opened.start(range(4))
        for index in range(4):
            opened.request(index, "run", {})
        at_work: set[int] = set()
        while at_work != {0, 1, 2, 3}:
            at_work |= {event.index for event in opened.poll(1.0)}
        opened.drop(1)
        assert opened.reached() == [0, 2, 3]
        started += channels(opened)
    codes = {channel.index: channel.process.returncode for channel in started}
    assert codes[0] == 0 and codes[1] == -signal.SIGTERM and codes[2] == -signal.SIGKILL and codes[3] is not None


def test_a_real_agent_answers_and_ends_in_order() -> None:
    with open_fleet(LocalAllocation(1)) as opened:
        for _ in range(2):
            (place,) = opened.ask_all("rendezvous", {0: RendezvousRequest("127.0.0.1")}, RendezvousAnswer, 60.0).all()
            assert place.address == "127.0.0.1"
        (channel,) = channels(opened)
        assert os.getsid(channel.process.pid) == channel.process.pid
        refused = opened.ask_all("dance", {0: None}, Any, 60.0)
        assert str(refused.failed[0]) == "the agent on node 0 (127.0.0.1) failed: unknown verb 'dance'"
    assert channel.process.returncode == 0
