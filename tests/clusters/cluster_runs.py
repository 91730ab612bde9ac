"""Runs on clusters, as a user starts them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

TINY = ("--vendor", "cpu", "--profile", "tiny")
SHORT = (*TINY, "--set", "training.max_steps=6", "training.warmup_steps=1")
ENDLESS = (*TINY, "--set", "training.epochs=100000", "training.max_steps=0")

_started: list[subprocess.Popen[str]] = []


def end_started() -> None:
    """What a test that failed did not wait for."""
    while _started:
        process = _started.pop()
        process.terminate()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()


class User:
    """Somebody in a folder, with what the cluster needs on every command line and in the environment."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self.options, self.environment = folder, options, environment
        folder.mkdir(exist_ok=True)

    def starts(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / "stderr").open("w") as stderr, (self.folder / "stdout").open("w") as stdout:
            process = subprocess.Popen(
                [sys.executable, "-m", "flagperf", *arguments, *self.options],
                cwd=self.folder,
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
            )
        _started.append(process)
        return process

    def runs(self, *arguments: str) -> tuple[int, str]:
        """Exit code and stderr."""
        return self.ended(self.starts(*arguments))

    def ended(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        try:
            return process.wait(300), self.stderr
        finally:
            process.kill()

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text()

    def wait_for_step(self, process: subprocess.Popen[bytes]) -> None:
        """Until progress has come over the cluster's channel. A command that ends before that is shown at once."""
        wait_until(lambda: process.poll() is not None or "loss" in self.stderr)
        assert process.poll() is None, self.stderr

    @property
    def bundle(self) -> Path:
        (bundle,) = (path for path in (self.folder / "runs").iterdir() if path.name != "detached")
        return bundle

    @property
    def ending(self) -> tuple[str, str]:
        ending: dict[str, Any] = json.loads((self.bundle / "run.json").read_text())["ending"]
        return ending["status"], ending["reason"]

    def verify(self) -> int:
        command = [sys.executable, "-m", "flagperf", "runs", "verify", "latest"]
        return subprocess.run(command, cwd=self.folder, check=False, capture_output=True).returncode


def losses(bundle: Path, rank: int = 0) -> list[float]:
    path = bundle / f"events/rank-{rank:05}.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # the last one may still be arriving
    events = [json.loads(line) for line in lines]
    return [event["loss"] for event in events if event["type"] == "step_finished" and "loss" in event]


@contextlib.contextmanager
def told_seconds(what: str) -> Iterator[None]:
    """Prints how long it took (`pytest -rP` shows it). The machine may be busy: nothing depends on it."""
    began = time.monotonic()
    yield
    print(f"{what}: the run had ended after {time.monotonic() - began:.1f} s")


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 600
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)
