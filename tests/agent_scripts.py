"""Agents of a few lines of Python, behind an allocation as clusters give them. They speak the channel's protocol."""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from flagperf import version
from flagperf.api import Allocation, Node
from flagperf.fleet.fleet import Fleet, Waiting
from flagperf.spec.protocol import hello_line

WORDS = """
import json, os, select, sys, time
stdin = os.fdopen(0, "rb", buffering=0)
def greet(hello):
    os.write(1, hello)
    return json.loads(stdin.readline())
def say(type, **fields):
    os.write(1, json.dumps({"type": type, **fields}).encode() + b"\\n")
def data(content):
    content = content.encode() if isinstance(content, str) else content
    say("data", size=len(content))
    while content:
        content = content[os.write(1, content):]
def heard():
    line = stdin.readline()
    message = json.loads(line) if line else {"type": "end"}
    return heard() if message["type"] == "beat" else message
def told(seconds):
    '''Whether it was told to stop, or the command has gone.'''
    return bool(select.select([stdin], [], [], seconds)[0]) and heard()["type"] in ("stop", "end")
def asked():
    message = heard()
    return (message["verb"], message["body"]) if message["type"] == "request" else sys.exit()
def answer(content, code=0, error=""):
    data(content)
    say("ended", code=code, error=error)
def rest():
    while heard()["type"] != "end": pass
def touch(path): open(path, "w").close()
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.01)
def note_pid(path):
    open(path + "~", "w").write(str(os.getpid()))
    os.rename(path + "~", path)
def wait_until_lost(path):
    '''Until the command has taken the exit code of the process that noted its pid there.'''
    wait_for(path)
    while os.path.exists("/proc/" + open(path).read()): time.sleep(0.01)
"""
GREETING = f"greet({hello_line(version())!r})\n"
"""The first line of most scripts."""


class ScriptAllocation(Allocation):
    """One script per node; the agent of an empty one cannot be started."""

    def __init__(self, *scripts: str, share_host: bool = False, greeting: str = GREETING) -> None:
        self.nodes = tuple(Node(f"host{index}", f"10.0.0.{index}") for index in range(len(scripts)))
        self.nodes_share_host = share_host  # type: ignore[misc]
        self.scripts, self.greeting = scripts, greeting
        self.started: list[int] = []

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        index = self.nodes.index(node)
        self.started.append(index)
        if not self.scripts[index]:
            return ["/no/such/ssh", node.name]
        return [sys.executable, "-I", "-S", "-c", WORDS + self.greeting + self.scripts[index]]


def answering(answer: Any) -> str:
    """A script that gives this to every question."""
    return f"while True: asked(); answer({msgspec.json.encode(answer).decode()!r})"


class StandingTime(Waiting):
    """Time stands still, unless its test moves it. Each stage is a time and a condition: where a fleet waits, its clock
    goes on to that time once that holds and all that was said before was read."""

    def __init__(self, *stages: tuple[float, Callable[[], bool]]) -> None:
        self.seconds = 0.0
        self._stages = list(stages)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        if self._is_due():
            self._go_on()
        else:
            time.sleep(0.01)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Any:
        is_due = self._is_due()
        ready = selector.select(0 if is_due else min(seconds, 0.05))
        if is_due and not ready:
            self._go_on()
        return ready

    def _is_due(self) -> bool:
        return bool(self._stages) and self._stages[0][1]()

    def _go_on(self) -> None:
        self.seconds, _ = self._stages.pop(0)


def channels(fleet: Fleet) -> list[Any]:
    """Of all agents that were started. Their processes' return codes are there once the fleet is closed."""
    return [*fleet._channels.values(), *fleet._lost.values(), *fleet._replaced]
