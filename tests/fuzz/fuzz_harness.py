"""Commands in this process, with what they print as bytes, and what holds for every one of them."""

from __future__ import annotations

import contextlib
import io
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flagperf.cli import run_cli

DOCUMENTED = {0, 2, 3, 6, 7, 8}
"""Exit codes of commands that start no run. 1 is a bug in flagperf."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HANG_SECONDS = 120


@dataclass(frozen=True)
class Printed:
    code: int
    out: str
    err: str


def run(arguments: Sequence[str]) -> Printed:
    """Fails where the command hangs. Output that is not UTF-8 fails too."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with _no_hang(arguments), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_cli(list(arguments))
    return Printed(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def check(arguments: Sequence[str], of: object = "") -> Printed:
    """What holds for every command line: a documented code, no traceback, one readable message, nothing raw."""
    printed = run(arguments)
    shown = f"{[word[:80] for word in arguments]} of {of}: {printed.code}, {printed.err[-2000:]}"
    assert "Traceback" not in printed.err, shown
    assert printed.code in DOCUMENTED, shown
    assert not RAW.search(printed.out + printed.err), shown
    assert all(len(line) <= 4_200 for line in printed.err.splitlines()), shown
    if printed.code not in (0, 3, 7):
        messages = [line for line in printed.err.splitlines() if line.startswith("flagperf: ")]
        most = len(arguments) - 1 if "import" in arguments else 1  # it says of each page what is wrong
        assert 1 <= len(messages) <= most or printed.err.startswith("Usage: "), shown  # a group alone shows its help
    return printed


@contextlib.contextmanager
def _no_hang(arguments: Sequence[str]) -> Iterator[None]:
    def give_up(_number: int, _frame: object) -> None:
        raise AssertionError(f"{[word[:80] for word in arguments]} hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
