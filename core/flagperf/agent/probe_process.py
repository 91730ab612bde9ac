"""ProbeProcess: the agent starts the probe, waits for its baseline before the workers start, and notices its death.

What the probe cannot report itself (it died, it hangs) the agent writes into the same file of samples, so that the
memory figures can be judged from the raw files alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from flagperf import version
from flagperf.agent.leftovers import MARKER, exit_message, kill_marked
from flagperf.event_files import EventWriter
from flagperf.events import ProbeFailed
from flagperf.kit import module_command
from flagperf.messages import Message, message
from flagperf.spec.protocol import ProbeRequest, hello_line

READY_SECONDS = 60.0
"""A vendor's library may be slow to load. After this time the workers start without a probe."""

END_SECONDS = 15.0
POLL_SECONDS = 0.2


@contextlib.contextmanager
def running_probe(request: ProbeRequest, log: Path, marker: str) -> Iterator[ProbeProcess]:
    """The probe until the block ends. It is starting: `await_ready` comes before the workers."""
    probe = ProbeProcess(request, log, marker)
    try:
        yield probe
    finally:
        probe.end()


class ProbeProcess:
    def __init__(self, request: ProbeRequest, log: Path, marker: str) -> None:
        self._samples, self._log = Path(request.path), log
        self._is_recorded = False
        self._marker = marker
        self.unrecorded: Message | None = None
        """What could not be written into the file of samples. The run goes on without the figures."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*module_command(sys.executable, "flagperf.agent"), "probe"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, MARKER: marker},
            )
        self._send(hello_line(version()) + msgspec.json.encode(request))

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self, stop: threading.Event) -> None:
        """Until its baseline is taken. A probe that is not ready in time is killed: its baseline would be taken while
        the workers run. `stop` cuts the wait short."""
        assert self._process.stdout
        ready, deadline = _set_when_ready(self._process.stdout), time.monotonic() + READY_SECONDS
        while not ready.wait(POLL_SECONDS) and not stop.is_set():
            if time.monotonic() > deadline:
                self._kill()
                self._record(message("probe.not_ready", seconds=f"{READY_SECONDS:g}"))
                return
        self.poll()

    def tell_launcher_pid(self, pid: int) -> None:
        self._send(str(pid).encode())

    def poll(self) -> None:
        """Record its death, once, if it has died."""
        if self._process.poll() is not None:
            self._record(message("probe.died", how=exit_message(self._process.returncode)))

    def end(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            returncode = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._record(message("probe.not_ended", seconds=f"{END_SECONDS:g}"))
        else:
            if returncode:
                self._record(message("probe.died", how=exit_message(returncode)))

    def _kill(self) -> None:
        """With the vendor's tools that it runs."""
        self._process.kill()
        kill_marked(self._marker)
        self._process.wait()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `poll` notices
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _record(self, what: Message) -> None:
        """Called only after its end, when nobody else writes to the file. Once, also where the probe said why."""
        if self._is_recorded:
            return
        self._is_recorded = True
        last_line = _last_line(self._log)
        why = message("probe.because", what=what, why=last_line) if last_line else what
        try:
            _refuse_other_than_file(self._samples)
            _cut_torn_line(self._samples)
            if not _has_failed_by_itself(self._samples):
                with EventWriter(self._samples) as writer:
                    writer.write(ProbeFailed(time.monotonic_ns(), str(why), why))
        except OSError as error:  # no reason to end the run: the parent records it
            self.unrecorded = message("probe.unrecorded", what=why, why=str(error.strerror))


def _set_when_ready(stream: IO[bytes]) -> threading.Event:
    """Set by `ready`, the line after the hello, and also when the stream ends before that."""
    ready = threading.Event()

    def read() -> None:
        stream.readline()
        stream.readline()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    return ready


def _refuse_other_than_file(path: Path) -> None:
    """Opening a pipe, which somebody may have put there, might never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")


def _has_failed_by_itself(samples: Path) -> bool:
    last_line = samples.read_bytes().rstrip().rpartition(b"\n")[2] if samples.exists() else b""
    return last_line.startswith(b'{"type":"probe_failed"')


def _cut_torn_line(path: Path) -> None:
    """Remove what the probe was writing when it died, so that the next event starts a new line."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:  # removed during the run
        return ""
    return lines[-1].strip() if lines else ""
