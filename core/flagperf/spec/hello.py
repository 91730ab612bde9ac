"""The first line in each direction between a command and its agents: the flagperf version of whoever writes it.

    {"flagperf": "0.1.0"}

The form of this line never changes, whatever becomes of the lines after it. So two versions that could not read each
other's messages still name the difference, before anything else is decoded.
"""

from __future__ import annotations

import msgspec

from flagperf.errors import NodeFailed


class Hello(msgspec.Struct, frozen=True):
    flagperf: str


def hello_line(version: str) -> bytes:
    return msgspec.json.encode(Hello(version)) + b"\n"


def check_hello(line: bytes, *, other: str, own: str, own_version: str) -> None:
    """Raise NodeFailed unless `line` is a hello of the same version. `other` and `own` name both sides."""
    try:
        other_version = msgspec.json.decode(line, type=Hello).flagperf
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NodeFailed(
            f"{other} did not say its flagperf version (its first line: {line[:80]!r}), {own} has flagperf "
            f"{own_version}: both need the same version; install flagperf=={own_version} there"
        ) from None
    if other_version != own_version:
        raise NodeFailed(
            f"{other} has flagperf {other_version}, {own} has flagperf {own_version}: both need the same version; "
            f"install flagperf=={own_version} there, or flagperf=={other_version} here"
        )
