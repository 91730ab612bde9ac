"""The machine as agent-side code sees it: file system root, environment, command runner. Tests pass their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec


class CommandOutput(msgspec.Struct, frozen=True):
    """What a tool did. `returncode` is None where it could not be started or did not end in time: see `problem`."""

    returncode: int | None
    """None where it could not be started or did not end in time."""
    stdout: str
    """All of it, decoded."""
    stderr: str
    """All of it, decoded."""
    problem: str = ""
    """Why there is no returncode."""

    @property
    def ok(self) -> bool:
        return self.returncode == 0


def _run_tool(argv: Sequence[str], timeout_seconds: float = 10.0) -> CommandOutput:
    from flagperf.kit.tool_process import run_tool  # lazy: every command imports this module, few run a tool

    return run_tool(argv, timeout_seconds)


class Machine(msgspec.Struct, frozen=True):
    """What an adapter may look at. Never open a path of `/` by yourself: tests put other machines here."""

    root: Path = Path("/")
    """`/`, or the folder of a simulated machine."""
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    """The environment variables of the process that asks."""
    run_tool: Callable[..., CommandOutput] = _run_tool
    """`run_tool(argv, timeout_seconds=...)`: without a shell, bounded in time; never raises for what the tool does."""

    def read(self, path: str) -> str | None:
        """The text of an absolute path below the root, stripped, or None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip("\x00\n ")
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Paths that match an absolute pattern, sorted, below the root."""
        return sorted(self.root.glob(pattern.lstrip("/")))
