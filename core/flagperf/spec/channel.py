"""What a command and `agent serve` say to each other: a hello each, then lines of JSON.

The command asks one thing at a time (Request) and may end it early (Stop). The agent passes on what the process of that
verb prints (Data, a line that its bytes follow) and says how it ended (Ended). Both send a Beat while the other waits,
so that either side notices a connection that is cut without a word.
"""

from __future__ import annotations

from typing import Annotated, Union

import msgspec

BEAT_SECONDS = 5.0
"""How often each side says that it is there."""

SILENT_SECONDS = 20.0
"""After so long without a word, the other side is gone."""

IDLE_SECONDS = 3600.0
"""The same for an agent that has nothing to do: the command may be busy."""


class ChannelLine(msgspec.Struct, frozen=True, tag_field="type"):
    """A line of either side."""


class Request(ChannelLine, frozen=True, tag="request"):
    verb: str
    body: msgspec.Raw


class Stop(ChannelLine, frozen=True, tag="stop"):
    """End the verb at work. Its Ended follows."""


class Beat(ChannelLine, frozen=True, tag="beat"):
    """From a command it also means that its own beats can be relied on."""


class Data(ChannelLine, frozen=True, tag="data"):
    size: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes that follow this line."""


class Ended(ChannelLine, frozen=True, tag="ended"):
    code: int
    """Exit code of the verb's process; negative for a signal."""
    error: str = ""
    """What it said on stderr, where it failed."""


class Leaving(ChannelLine, frozen=True, tag="leaving"):
    """Somebody else has told the agent to stop: a cancelled job, a stopped container."""

    signal: str


CommandLine = Union[Request, Stop, Beat]  # noqa: UP007
AgentLine = Union[Data, Ended, Beat, Leaving]  # noqa: UP007


def encode_line(line: ChannelLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
