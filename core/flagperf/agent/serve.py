"""`agent serve`: one process per node for as long as a command needs it. It forks a process for each verb that it is
asked for, passes on what that prints, and notices when the command is gone: stdin ends, or nothing was heard for too
long. Then, and on SIGTERM, everything that was started is stopped.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import IO, NoReturn

import msgspec

from flagperf.agent.leftovers import Watchdog, close_all_but
from flagperf.errors import FlagPerfError
from flagperf.processes import die_with_parent, kill_tree, name_process
from flagperf.spec.protocol import (
    BEAT_SECONDS,
    IDLE_SECONDS,
    SILENT_SECONDS,
    Beat,
    ChannelLine,
    CommandLine,
    Data,
    Ended,
    Leaving,
    Request,
    Stop,
    encode_line,
)

VERBS = {
    "describe": "flagperf.agent.describe:answer_describe",
    "inspect": "flagperf.agent.node_checks:answer_inspect",
    "check": "flagperf.agent.node_checks:answer_check",
    "rendezvous": "flagperf.agent.node_checks:answer_rendezvous",
    "run": "flagperf.agent.node_run:answer_run",
}
"""The function that answers a request, by its verb. It is imported in the fork alone."""

GRACE_SECONDS = 15.0
"""How long a run gets to end by itself once it was told to, and its last words to reach the command."""

PASSING_SECONDS = 0.5
"""How long the streams of a verb are read after its end: a tool that it left behind may hold them open."""

CHUNK_BYTES = 1 << 16
MAX_WAITING_BYTES = 1 << 20
"""While so much is waiting to be sent, nothing more is read from the verb."""

MAX_ERROR_BYTES = 1 << 16

_decoder: msgspec.json.Decoder[CommandLine] = msgspec.json.Decoder(CommandLine)


def main(stdin: IO[bytes], stdout: IO[bytes], clock: Callable[[], float] = time.monotonic) -> int:
    with Watchdog() as watchdog:
        return _Server(stdin.fileno(), stdout.fileno(), watchdog, clock).serve()


class _Verb:
    """The forked process of a verb."""

    def __init__(self, request: Request, clock: Callable[[], float]) -> None:
        self.name, self._clock = request.verb, clock
        reading, self._stdin = os.pipe()
        self.stdout, writing = os.pipe()
        self.stderr, complaining = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(request, reading, writing, complaining)
        for theirs in (reading, writing, complaining):
            os.close(theirs)
        self.open_streams = {self.stdout, self.stderr}
        self.error = b""
        self.kill_at: float | None = None
        self._code: int | None = None
        self._ended_at = 0.0

    def stop(self) -> None:
        """Close its stdin, which tells a run to stop. Other verbs have nothing to stop in order."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
            self.kill_at = self._clock() + (GRACE_SECONDS if self.name == "run" else 0.0)

    def kill(self) -> None:
        """Kill it with the tools that it runs."""
        self.kill_at = None
        kill_tree(self.pid)

    def streams_to_read(self, num_waiting_bytes: int) -> list[int]:
        """Return its open streams, without stdout while much of what it printed is waiting to be sent."""
        is_full = num_waiting_bytes >= MAX_WAITING_BYTES
        return [stream for stream in self.open_streams if stream == self.stderr or not is_full]

    def code(self) -> int | None:
        """Return its exit code, once all that it printed was read."""
        now = self._clock()
        if self._code is None:
            pid, status = os.waitpid(self.pid, 0 if not self.open_streams else os.WNOHANG)
            if pid:
                self._code, self._ended_at = os.waitstatus_to_exitcode(status), now
        if self._code is None or (self.open_streams and now < self._ended_at + PASSING_SECONDS):
            return None
        return self._code

    def close(self) -> None:
        for stream in (self.stdout, self.stderr, self._stdin):
            if stream >= 0:
                os.close(stream)


def _work(request: Request, reading: int, writing: int, complaining: int) -> NoReturn:
    """Answer a request in the fork. It dies with the agent; the watchdog then ends what it has started."""
    code = 1
    try:
        die_with_parent(signal.SIGKILL)
        name_process(f"flagperf-{request.verb}")
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(reading, 0)
        os.dup2(complaining, 1)  # whatever a vendor's library prints: stdout carries the answer alone
        os.dup2(complaining, 2)
        close_all_but({0, 1, 2, writing})
        with os.fdopen(0, "rb", closefd=False) as stdin, os.fdopen(writing, "wb") as answer:
            module, _, name = VERBS[request.verb].partition(":")
            code = int(getattr(importlib.import_module(module), name)(bytes(request.body), stdin, answer))
    except FlagPerfError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or the verb has closed it
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Server:
    def __init__(self, stdin: int, stdout: int, watchdog: Watchdog, clock: Callable[[], float]) -> None:
        self._stdin, self._stdout, self._watchdog, self._clock = stdin, stdout, watchdog, clock
        self._received, self._waiting = bytearray(), bytearray()
        self._verb: _Verb | None = None
        self._heard_at = self._said_at = clock()
        self._has_beats = False
        self._leave_at: float | None = None
        self._is_over = False
        os.set_blocking(stdout, False)
        # SIGTERM wakes the loop, also where it comes between two waits.
        self._signals, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)

    def serve(self) -> int:
        while not self._is_over or self._verb is not None:
            readers = [self._signals, *([] if self._is_over else [self._stdin])]
            if self._verb is not None:
                readers += self._verb.streams_to_read(len(self._waiting))
            writers = [self._stdout] if self._waiting else []
            # The end of a verb is noticed by its streams; where one was closed before, by looking.
            pause = 1.0 if self._verb is None or len(self._verb.open_streams) == 2 else 0.05
            readable, writable, _ = select.select(readers, writers, [], pause)
            for stream in readable:
                if stream == self._signals:
                    os.read(self._signals, 64)
                    if self._leave_at is None:
                        # It leaves once all was said: a cluster that takes the node back does not say why before all
                        # processes are gone.
                        self._leave_at = self._clock() + 2 * GRACE_SECONDS
                        self._say(Leaving("SIGTERM"))
                        self._stop_verb()
                elif stream == self._stdin:
                    self._on_request()
                else:
                    self._on_verb_output(stream)
            if writable:
                try:
                    del self._waiting[: os.write(self._stdout, self._waiting[:CHUNK_BYTES])]
                except BlockingIOError:
                    pass
                except OSError:  # nobody reads it any more
                    self._waiting.clear()
                    self._finish()
            self._on_time()
            self._poll_verb()
        return 0

    def _on_request(self) -> None:
        content = os.read(self._stdin, CHUNK_BYTES)
        if not content:
            self._finish()
            return
        self._heard_at = self._clock()
        self._received += content
        while (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            try:
                asked = _decoder.decode(line)
                if isinstance(asked, Beat):
                    self._has_beats = True
                elif isinstance(asked, Stop):
                    self._stop_verb()
                elif self._verb is not None:
                    self._say(Ended(2, f"asked for {asked.verb!r} while {self._verb.name!r} is at work"))
                elif asked.verb not in VERBS:
                    self._say(Ended(2, f"unknown verb {asked.verb!r}"))
                else:
                    if asked.verb == "run":
                        self._watchdog.tell(asked.body)
                    self._verb = _Verb(asked, self._clock)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                _pass_on(f"the command sent an invalid request ({error}): stopping\n".encode())
                self._finish()
                return

    def _finish(self) -> None:
        """Stop everything: the command is gone."""
        self._is_over = True
        self._stop_verb()

    def _stop_verb(self) -> None:
        if self._verb is not None:
            self._verb.stop()

    def _on_verb_output(self, stream: int) -> None:
        """Send what it printed to the command. Pass stderr on as it is, and keep its end, which says why it failed."""
        verb = self._verb
        assert verb is not None
        content = os.read(stream, select.PIPE_BUF if stream == verb.stderr else CHUNK_BYTES)
        if not content:
            verb.open_streams.discard(stream)
        elif stream == verb.stderr:
            _pass_on(content)
            verb.error = (verb.error + content)[-MAX_ERROR_BYTES:]
        else:
            self._say(Data(len(content)))
            self._waiting += content

    def _poll_verb(self) -> None:
        verb = self._verb
        code = verb.code() if verb is not None else None
        if verb is None or code is None:
            return
        self._verb = None
        verb.close()
        if verb.name == "run" and code < 0:  # it was killed, and has stopped nothing
            self._watchdog.clean_up()
        self._say(Ended(code, verb.error.decode(errors="replace").strip() if code else ""))

    def _say(self, line: ChannelLine) -> None:
        self._waiting += encode_line(line)
        self._said_at = self._clock()

    def _on_time(self) -> None:
        now = self._clock()
        limit = SILENT_SECONDS if self._verb is not None else IDLE_SECONDS
        if self._has_beats and not self._is_over and now - self._heard_at > limit:
            _pass_on(f"nothing was heard from the command for {limit:g} s: stopping\n".encode())
            self._finish()
        has_said_all = self._verb is None and not self._waiting
        if self._leave_at is not None and (has_said_all or now > self._leave_at):
            self._finish()
        if self._has_beats and now - self._said_at >= BEAT_SECONDS:
            self._say(Beat())
        if self._verb is not None and self._verb.kill_at is not None and now >= self._verb.kill_at:
            self._verb.kill()
        if self._is_over and self._verb is None:
            self._waiting.clear()


def _pass_on(content: bytes) -> None:
    """Write at most PIPE_BUF bytes to stderr, if there is room: behind a cut connection nobody reads it, and an agent
    that waits there would not notice the silence."""
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, content)
