"""The suites' side of `flagperf.testing.child`: an adapter in a process of its own, asked one thing at a time."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flagperf.kit import module_command

ANSWER_SECONDS = 120.0
"""The limit for a driver that hangs. Answers come in well under a second."""


class AdapterError(AssertionError):
    """An error that the adapter raised in its process. `kinds` are the names of its class and the classes above it."""

    def __init__(self, text: str, kinds: list[str]) -> None:
        super().__init__(f"{kinds[0]}: {text}")
        self.kinds = kinds


class AdapterProcess:
    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._process, self._errors = process, errors

    def ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # it has ended: it says why below
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, f"the adapter did not answer {do!r} within {ANSWER_SECONDS:g} s"
        line = self._process.stdout.readline()
        assert line, f"the adapter's process ended at {do!r}: {said_last(self._errors.read_text(errors='replace'))}"
        answer = json.loads(line)
        if "error" in answer:
            raise AdapterError(answer["error"], answer["kind"])
        return answer["answer"]


def said_last(output: str) -> str:
    """Return the last line of what a failed process said: for a traceback, the exception."""
    return next((line for line in reversed(output.splitlines()) if line.strip()), "it said nothing")


@contextlib.contextmanager
def adapter_process(vendor: str, environ: Mapping[str, str], folder: Path) -> Iterator[AdapterProcess]:
    """Start the adapter in `folder`, which also takes what it prints on stderr."""
    errors = folder / "adapter-stderr.txt"
    with errors.open("ab") as stderr:
        process = subprocess.Popen(
            [*module_command(sys.executable, "flagperf.testing.child"), vendor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(environ),
            cwd=folder,
        )
    try:
        yield AdapterProcess(process, errors)
    finally:
        assert process.stdin and process.stdout
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        process.stdout.close()
