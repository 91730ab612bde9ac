"""The agent's side of the probe: start it, wait for its baseline before the workers start, notice its death.

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
    """Yield the probe, and end it with the block. It is starting: `await_ready` comes before the workers."""
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
        """Wait until its baseline is taken, or `stop` is set. Kill a probe that is not ready in time: it would take its
        baseline while the workers run."""
        ready = threading.Event()

        def read() -> None:
            assert self._process.stdout
            self._process.stdout.readline()  # its hello
            self._process.stdout.readline()  # `ready`, unless it has ended
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + READY_SECONDS
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
        """Kill it with the vendor's tools that it runs."""
        self._process.kill()
        kill_marked(self._marker)
        self._process.wait()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `poll` notices
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _record(self, what: Message) -> None:
        """Record why the probe failed, once, after its end, when nobody else writes to the file."""
        if self._is_recorded:
            return
        self._is_recorded = True
        lines: list[str] = []
        with contextlib.suppress(OSError):  # the log was removed during the run
            lines = self._log.read_text(errors="replace").strip().splitlines()
        why = message("probe.because", what=what, why=lines[-1].strip()) if lines else what
        try:
            content = b""
            if self._samples.exists():
                if not self._samples.is_file():  # opening a pipe, which somebody may have put there, might never end
                    raise OSError(errno.EINVAL, "it is not a regular file")
                content = self._samples.read_bytes()
            num_whole = content.rfind(b"\n") + 1
            if num_whole < len(content):  # the line that it was writing when it died
                os.truncate(self._samples, num_whole)
            last_line = content[:num_whole].rstrip().rpartition(b"\n")[2]
            if not last_line.startswith(b'{"type":"probe_failed"'):  # it has not said itself why
                with EventWriter(self._samples) as writer:
                    writer.write(ProbeFailed(time.monotonic_ns(), str(why), why))
        except OSError as error:  # no reason to end the run: the parent records it
            self.unrecorded = message("probe.unrecorded", what=why, why=str(error.strerror))
