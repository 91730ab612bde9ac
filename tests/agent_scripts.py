"""Agents of a few lines of Python, behind an allocation as clusters give them. They speak the channel's protocol."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from flagperf import version
from flagperf.api import Allocation, Node
from flagperf.fleet import Fleet
from flagperf.spec import hello_line

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


def channels(fleet: Fleet) -> list[Any]:
    """Of all agents that were started. Their processes' return codes are there once the fleet is closed."""
    return [*fleet._channels.values(), *fleet._lost.values(), *fleet._replaced]
