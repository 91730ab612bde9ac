"""The first line in each direction between a command and its agents: the flagperf version of the sender.

    {"flagperf": "0.1.0"}

The format of this line never changes. So two versions that cannot read each other's messages still report the mismatch
before anything else is decoded.
"""

from __future__ import annotations

import msgspec

from flagperf.errors import NodeFailed
from flagperf.messages import Message, message


class VersionMismatch(NodeFailed):
    def __init__(self, said: Message) -> None:
        super().__init__(str(said))
        self.message = said


class Hello(msgspec.Struct, frozen=True):
    flagperf: str


def hello_line(version: str) -> bytes:
    return msgspec.json.encode(Hello(version)) + b"\n"


def check_hello(line: bytes, *, other: str, own: str, own_version: str) -> None:
    """Raise VersionMismatch unless `line` is a hello of the same version. `other` and `own` name both sides."""
    try:
        other_version = msgspec.json.decode(line, type=Hello).flagperf
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = message("hello.none", other=other, line=repr(line[:80]), own=own, own_version=own_version)
        raise VersionMismatch(said) from None
    if other_version != own_version:
        versions = {"own_version": own_version, "other_version": other_version}
        raise VersionMismatch(message("hello.differs", other=other, own=own, **versions))
