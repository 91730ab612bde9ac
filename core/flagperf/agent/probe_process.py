"""The agent's hand on the probe: its baseline is taken before the workers start, and its death is noticed.

What the probe cannot say of itself (it died, it hangs) the agent writes into the same file of samples, so that the
memory figures can be judged from the raw files alone.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from flagperf.events import EventWriter, ProbeFailed
from flagperf.kit import module_command
from flagperf.spec import ProbeRequest

READY_SECONDS = 60.0
"""A vendor's library may be slow to load; what takes longer would keep the workers waiting for nothing."""

END_SECONDS = 15.0
POLL_SECONDS = 0.2


@contextlib.contextmanager
def probe_beside(request: ProbeRequest, log: Path, stop: threading.Event) -> Iterator[ProbeProcess]:
    """The probe, ready or given up; ended with the block. `stop` cuts the wait for it short."""
    probe = ProbeProcess(request, log)
    try:
        probe.await_ready(stop)
        yield probe
    finally:
        probe.end()


class ProbeProcess:
    def __init__(self, request: ProbeRequest, log: Path) -> None:
        self._samples, self._log = Path(request.path), log
        self._is_recorded = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*module_command(sys.executable, "flagperf.agent"), "probe"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
            )  # fmt: skip
        self._send(msgspec.json.encode(request))

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self, stop: threading.Event) -> None:
        """One that is not ready in time is ended: its baseline would be taken beside the workers."""
        assert self._process.stdout
        spoke, deadline = _set_at_first_line(self._process.stdout), time.monotonic() + READY_SECONDS
        while not spoke.wait(POLL_SECONDS) and not stop.is_set():
            if time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                self._record(f"the probe was not ready within {READY_SECONDS:g} s")
                return
        self.look()

    def tell_launcher_pid(self, pid: int) -> None:
        self._send(str(pid).encode())

    def look(self) -> None:
        """Record its death, once."""
        if self._process.poll() is not None:
            self._record(_death(self._process.returncode))

    def end(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            returncode = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._record(f"the probe did not end within {END_SECONDS:g} s and was killed")
        else:
            if returncode:
                self._record(_death(returncode))

    def _send(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `look` notices
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _record(self, what: str) -> None:
        """Only ever after its end, when nobody else writes to the file."""
        if self._is_recorded:
            return
        self._is_recorded = True
        _cut_half_line(self._samples)
        reason = ": ".join(filter(None, [what, _last_line(self._log)]))
        with EventWriter(self._samples) as writer:
            writer.write(ProbeFailed(time.monotonic_ns(), reason))


def _set_at_first_line(stream: IO[bytes]) -> threading.Event:
    """Also set when the stream ends without one."""
    spoke = threading.Event()

    def read() -> None:
        stream.readline()
        spoke.set()

    threading.Thread(target=read, daemon=True).start()
    return spoke


def _death(returncode: int) -> str:
    if returncode >= 0:
        return f"the probe ended with code {returncode}"
    try:
        return f"the probe was killed by signal {-returncode} ({signal.Signals(-returncode).name})"
    except ValueError:  # a real-time signal
        return f"the probe was killed by signal {-returncode}"


def _cut_half_line(path: Path) -> None:
    """What the probe was writing when it died, so that what follows stands on a line of its own."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
