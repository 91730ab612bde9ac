"""A machine inside this one: processes with a host name, mounts and process ids of their own.

Its first process holds all of it. When that one ends, the kernel kills every other process of the machine, containers
included; and it ends with the process that made it, even if that is killed. So nothing needs to be found and cleaned
up afterwards, whatever a test did.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from needs import program

READY = "ready"


class Machine:
    """Runs the lines of `set_up` in a shell, waits for `connect`, and becomes `service`."""

    def __init__(
        self,
        name: str,
        service: Sequence[str],
        log: Path,
        *,
        set_up: Sequence[str] = (),
        own_network: bool = False,
        connect: Callable[[int], None] = lambda pid: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as stderr:
            self._holder = subprocess.Popen(
                [*_in_namespaces(own_network), "sh", "-c", _script(name, set_up), "sh", *service],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
                env=environment,
            )
        assert self._holder.stdin and self._holder.stdout
        with self._killed_on_failure(), self._holder.stdin, self._holder.stdout:
            if self._holder.stdout.readline().strip() != READY:
                raise RuntimeError(f"{name} did not start: {log.read_text()}")
            (self._first,) = psutil.Process(self._holder.pid).children()
            self.pid = self._first.pid
            connect(self.pid)
            self._holder.stdin.write("\n")

    def is_running(self) -> bool:
        return self._holder.poll() is None

    def processes(self, command: str = "") -> list[psutil.Process]:
        """What runs there beside its service, containers included; only those with these words in their commands."""
        found = []
        for process in self._first.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and command in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def holds(self, process: psutil.Process) -> bool:
        """Whether it is part of this machine, or what keeps the machine up."""
        return any(each.pid == self._holder.pid for each in (process, *process.parents()))

    def enter(self, *command: str) -> list[str]:
        """The command that runs `command` there, without a login."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid", *command]

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Until its service answers. Raises, with the machine's log, if it ended or does not."""
        deadline = time.monotonic() + 600
        while not happened():
            if not self.is_running() or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {what} did not come: {self.log.read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As by pulling its plug."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._first.kill()
        self._holder.wait()

    @contextlib.contextmanager
    def _killed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._holder.kill()
            self._holder.wait()
            raise


def _in_namespaces(own_network: bool) -> list[str]:
    namespaces = ["--mount-proc", "--uts", "--ipc", "--pid", *["--net"] * own_network]
    return [program("setpriv"), "--pdeathsig=KILL", program("unshare"), *namespaces, "--fork", "--kill-child"]


def _script(name: str, set_up: Sequence[str]) -> str:
    named = f"echo {name} > /proc/sys/kernel/hostname"
    return "\n".join(["set -eu", named, *set_up, f"echo {READY}", "read connected", 'exec "$@" </dev/null >&2'])


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises, with what it said, if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip() or done.stdout}")
    return done.stdout
