"""`agent serve`, seen from the command's end of its pipes. Verbs are a few lines of Python, in real processes. First
what all modes share: the usage, and the hello that comes before everything else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from flagperf import version
from flagperf.agent.__main__ import MODES
from flagperf.agent.leftovers import MARKER, folder_prefix
from flagperf.agent.serve import GRACE_SECONDS
from flagperf.spec.protocol import (
    BEAT_SECONDS,
    IDLE_SECONDS,
    SILENT_SECONDS,
    AgentLine,
    Beat,
    ChannelLine,
    Data,
    Ended,
    Leaving,
    Request,
    Stop,
    encode_line,
    hello_line,
)
from live_processes import is_pid_alive

HELLO = hello_line(version())
RUN_ID = f"20260101T000000Z-demo-{os.getpid():06d}"
ORDER = {"job": {"run_id": RUN_ID}, "node_index": 3}
SERVE = """
import functools, os, subprocess, sys, time, types
from flagperf.agent import leftovers, serve
from flagperf.agent.__main__ import main
leftovers.GRACE_SECONDS = 600.0
CLOCK = {clock!r}
def clock():
    return float(open(CLOCK).read())
if CLOCK:
    serve.main = functools.partial(serve.main, clock=clock)
def verb(function):
    '''Registers a verb of this name, also in place of a real one.'''
    module = types.ModuleType(function.__name__)
    module.main = function
    sys.modules["flagperf.agent." + function.__name__] = module
    serve.VERBS[function.__name__] = f"flagperf.agent.{{function.__name__}}:main"
def say(answer, *words):
    answer.write(b"".join(words))
    answer.flush()
{code}
sys.exit(main(["serve"]))
"""
WAIT = """
@verb
def run(body, stdin, answer):
    say(answer, b"at work\\n")
    while os.read(0, 100): pass
    say(answer, b"stopped in order")
    return 0
@verb
def wait(body, stdin, answer):
    say(answer, b"at work\\n")
    time.sleep(600)
"""


def agent(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Run it to its end. Return its exit code, and what it printed and said."""
    command = [sys.executable, "-m", "flagperf.agent", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("mode", [[], ["describe"]])
def test_an_unknown_mode_is_answered_with_the_usage(mode: list[str]) -> None:
    code, _, said = agent(*mode)
    assert code == 2 and "usage: python -m flagperf.agent serve|probe" in said


@pytest.mark.parametrize("mode", MODES)
def test_a_command_of_another_version_is_refused_before_its_request_is_decoded(mode: str) -> None:
    other = f"the command that started it has flagperf 9.8.7, this agent on {socket.gethostname()} has flagperf "
    remedy = f"both need the same version; install flagperf=={version()} there, or flagperf==9.8.7 here\n"
    stdin = hello_line("9.8.7") + b"a request in a form of the future\n"
    assert agent(mode, stdin=stdin) == (3, HELLO, f"{other}{version()}: {remedy}")


def test_a_command_that_says_no_version_is_refused() -> None:
    code, _, said = agent("serve", stdin=b"\xff\n")
    assert code == 3 and "did not send its flagperf version" in said


class Agent:
    """With a clock that stands still unless it is moved."""

    def __init__(self, code: str, clock: Path | None) -> None:
        self._clock = clock
        self.move_clock(0.0)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE.format(code=code, clock=str(clock or ""))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self.stdin.write(HELLO)
        assert self.stdout.readline() == HELLO

    def move_clock(self, seconds: float) -> None:
        if self._clock is not None:
            new = self._clock.with_suffix(".new")
            new.write_text(str(seconds))
            new.replace(self._clock)

    def ask(self, verb: str, body: object = None) -> None:
        self.say(Request(verb, msgspec.Raw(msgspec.json.encode(body))))

    def start(self, verb: str) -> None:
        """Wait until it is at work."""
        self.ask(verb, ORDER)
        assert self.hear() == b"at work\n"

    def say(self, line: ChannelLine) -> None:
        self.stdin.write(encode_line(line))
        self.stdin.flush()

    def hear(self) -> AgentLine | bytes:
        line = msgspec.json.decode(self.stdout.readline(), type=AgentLine)
        return self.stdout.read(line.size) if isinstance(line, Data) else line

    def answer(self) -> tuple[bytes, Ended]:
        content = b""
        while not isinstance(line := self.hear(), Ended):
            content += line if isinstance(line, bytes) else b""
        return content, line

    def end(self) -> tuple[int, str]:
        """Close its stdin. Return its exit code, and what it said."""
        self.stdin.close()
        return self.left()

    def left(self) -> tuple[int, str]:
        said = self.stderr.read().decode()
        return self.process.wait(), said


Serve = Callable[..., Agent]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    agents = []

    def start(code: str, real_time: bool = False) -> Agent:
        agents.append(Agent(code, None if real_time else tmp_path / "clock"))
        return agents[-1]

    yield start
    for agent in agents:
        agent.process.kill()
        agent.process.wait()
        for stream in (agent.stdin, agent.stdout, agent.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def test_a_verb_that_fails_says_why_and_the_agent_goes_on(serve: Serve) -> None:
    agent = serve("""
@verb
def echo(body, stdin, answer):
    answer.write(body)
    return 0
@verb
def refuse(*_):
    from flagperf.errors import NodeFailed
    raise NodeFailed("no such folder")
@verb
def burst(*_):
    print("a vendor's library")
    raise KeyError("x")
@verb
def die(*_):
    os.kill(os.getpid(), 9)
""")
    agent.ask("refuse")
    assert agent.answer() == (b"", Ended(3, "no such folder"))
    agent.ask("burst")
    content, ended = agent.answer()
    assert (content, ended.code) == (b"", 1)
    assert "Traceback" in ended.error and ended.error.endswith("KeyError: 'x'")
    agent.ask("die")
    assert agent.answer() == (b"", Ended(-signal.SIGKILL))
    agent.ask("dance")
    assert agent.answer() == (b"", Ended(2, "unknown verb 'dance'"))
    for body in ("one", {"two": 2}):
        agent.ask("echo", body)
        assert agent.answer() == (msgspec.json.encode(body), Ended(0))
    code, said = agent.end()
    assert code == 0 and "a vendor's library" in said and "no such folder" in said


def test_one_verb_works_at_a_time_and_stop_ends_a_run_in_order_and_any_other_at_once(serve: Serve) -> None:
    agent = serve(WAIT)
    agent.say(Stop())  # nothing is at work
    agent.start("run")
    agent.ask("wait")
    assert agent.hear() == Ended(2, "asked for 'wait' while 'run' is at work")
    agent.say(Stop())
    assert agent.answer() == (b"stopped in order", Ended(0))
    agent.start("wait")
    agent.say(Stop())
    assert agent.answer() == (b"", Ended(-signal.SIGKILL))


def test_the_end_of_stdin_stops_the_run(serve: Serve, tmp_path: Path) -> None:
    flag = tmp_path / "stopped"
    agent = serve(WAIT.replace("return 0", f"open({str(flag)!r}, 'w').close(); return 0"))
    agent.start("run")
    assert agent.end() == (0, "")
    assert flag.exists()


def test_a_run_that_does_not_stop_is_killed_with_what_it_started(serve: Serve, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    agent = serve(f"""
@verb
def run(body, stdin, answer):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
    say(answer, b"at work\\n")
    os.read(0, 100)
    say(answer, b"told to stop")
    time.sleep(600)
""")
    agent.start("run")
    agent.say(Stop())
    assert agent.hear() == b"told to stop"
    agent.move_clock(GRACE_SECONDS)
    assert agent.answer()[1] == Ended(-signal.SIGKILL)
    assert not any(is_pid_alive(int(pid)) for pid in pids.read_text().split())


def test_sigterm_is_told_once_and_stops_the_run(serve: Serve, tmp_path: Path) -> None:
    told_again = tmp_path / "told_again"
    agent = serve(f"""
@verb
def run(body, stdin, answer):
    say(answer, b"at work\\n")
    while os.read(0, 100): pass
    say(answer, b"stopping")
    while not os.path.exists({str(told_again)!r}): time.sleep(0.01)
    return 0
""")
    agent.start("run")
    agent.process.send_signal(signal.SIGTERM)
    assert [agent.hear(), agent.hear()] == [Leaving("SIGTERM"), b"stopping"]
    agent.process.send_signal(signal.SIGTERM)
    told_again.touch()
    assert agent.hear() == Ended(0)
    assert agent.left() == (0, "")


@pytest.mark.parametrize(("at_work", "seconds"), [(True, SILENT_SECONDS), (False, IDLE_SECONDS)])
def test_a_command_that_has_beaten_and_falls_silent_is_gone(serve: Serve, at_work: bool, seconds: float) -> None:
    """As behind a cut network: the pipes stay open."""
    agent = serve(WAIT)
    agent.say(Beat())
    if at_work:
        agent.start("run")
    else:
        agent.ask("dance")
        agent.answer()
    for each in (BEAT_SECONDS, seconds):
        agent.move_clock(each)
        assert agent.hear() == Beat()
    agent.move_clock(seconds + 0.1)
    assert agent.left() == (0, f"nothing was heard from the command for {seconds:g} s: stopping\n")
    assert not agent.stdin.closed


def test_a_command_that_never_beats_may_be_silent(serve: Serve) -> None:
    agent = serve("""
@verb
def run(body, stdin, answer):
    say(answer, b"at work\\n")
    while clock() < 1e6: time.sleep(0.01)
    say(answer, b"later")
    while os.read(0, 100): pass
    return 0
""")
    agent.start("run")
    agent.move_clock(1e6)
    assert agent.hear() == b"later"  # what arrives in a turn of its loop is sent in the next one
    agent.say(Stop())
    assert agent.answer() == (b"", Ended(0))


@pytest.mark.parametrize("line", [b"\xff\n", b'{"type":"request","verb":"run","body":{}}\n'])
def test_what_is_no_request_stops_the_agent(serve: Serve, line: bytes) -> None:
    agent = serve(WAIT)
    agent.stdin.write(line)
    agent.stdin.flush()
    code, said = agent.left()
    assert code == 0
    assert said.startswith("the command sent an invalid request (") and said.endswith("): stopping\n")


BYTES = 5_000_000
"""More than agent and pipes hold."""


def test_much_output_arrives_unchanged_and_waits_for_a_slow_reader(serve: Serve, tmp_path: Path) -> None:
    full, done = tmp_path / "full", tmp_path / "done"
    agent = serve(f"""
class Verb(serve._Verb):
    def streams_to_read(self, num_waiting_bytes):
        found = super().streams_to_read(num_waiting_bytes)
        if self.stdout in self.open_streams and self.stdout not in found:
            open({str(full)!r}, "w").close()
        return found
serve._Verb = Verb
@verb
def flood(body, stdin, answer):
    import hashlib, random
    content = random.Random(7).randbytes({BYTES})
    say(answer, content)
    open({str(done)!r}, "w").write(hashlib.sha256(content).hexdigest())
    return 0
""")
    agent.ask("flood")
    while not full.exists():
        assert agent.process.poll() is None
        time.sleep(0.01)
    assert not done.exists()
    content, ended = agent.answer()
    assert (len(content), ended) == (BYTES, Ended(0))
    assert hashlib.sha256(content).hexdigest() == done.read_text()


def test_stderr_that_nobody_reads_stops_nothing(serve: Serve) -> None:
    agent = serve("""
@verb
def complain(body, stdin, answer):
    os.write(2, b"x" * 1_000_000)
    os.write(2, b"\\nlast words")
    return 1
""")
    agent.ask("complain")
    _, ended = agent.answer()
    assert ended.code == 1 and ended.error.endswith("x\nlast words")
    assert len(ended.error) <= 1 << 16


def test_a_tool_that_a_verb_leaves_behind_does_not_hold_its_answer(serve: Serve) -> None:
    agent = serve(
        """
@verb
def leave(body, stdin, answer):
    tool = subprocess.Popen(["sleep", "600"])
    answer.write(str(tool.pid).encode())
    return 0
""",
        real_time=True,
    )
    agent.ask("leave")
    content, ended = agent.answer()
    os.kill(int(content), signal.SIGKILL)
    assert ended == Ended(0)


LEAVING_BEHIND = f"""
import tempfile
@verb
def run(body, stdin, answer):
    os.mkdir(tempfile.gettempdir() + "/{folder_prefix(RUN_ID, 3)}x")
    marked = dict(os.environ, {MARKER}="{RUN_ID}/3/workers")
    worker = subprocess.Popen(["sleep", "600"], env=marked, start_new_session=True)
    say(answer, b"at work\\n", str(worker.pid).encode())
    while os.read(0, 100): pass
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_run_leaves_behind_is_ended_and_removed(serve: Serve) -> None:
    agent = serve(LEAVING_BEHIND, real_time=True)  # what was left behind holds the streams open
    agent.ask("run", ORDER)
    content = agent.hear()
    assert isinstance(content, bytes)
    agent.say(Stop())
    assert agent.answer()[1].code == -signal.SIGKILL
    code, said = agent.end()
    assert code == 0 and said.startswith("the agent left behind: 1 processes, which were killed; removed: /")
    assert not is_pid_alive(int(content.splitlines()[1]))
    assert not list(Path(tempfile.gettempdir()).glob(f"{folder_prefix(RUN_ID, 3)}*"))
