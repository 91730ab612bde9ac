"""Someone who types what a page of docs/ says, in one folder: its files are written, its commands are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from flagperf.kit import module_command

DOCS = Path(__file__).parents[2] / "docs"
SHORT = "[cases.distilbert.training]\nmax_steps = 8\n"
"""The reader's own flagperf.toml: runs of distilbert take a few steps here."""


def fenced(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    return [line for block in fenced(page, "sh") for line in block.splitlines()]


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"PYTHONPATH": str(folder / "site"), "OMP_WAIT_POLICY": "passive"}
        """What the commands find in their environment, over that of the tests."""

    def writes_the_files(self, page: str) -> None:
        """The first line of a file's block is a comment with its path."""
        for block in [*fenced(page, "toml"), *fenced(page, "python")]:
            first, _, content = block.partition("\n")
            path = self.folder / first.removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def types(self, command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        program, *arguments = shlex.split(command)
        if program == "pip":
            return self._pip(*arguments)
        if program == "python":
            program, arguments = arguments[1], arguments[2:]
        return subprocess.run(
            [*module_command(sys.executable, program), *arguments],
            cwd=cwd or self.folder, env={**os.environ, **self.environ},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip

    def types_all(self, lines: list[str]) -> dict[str, str]:
        """Command -> what it printed."""
        said = {}
        for command in lines:
            done = self.types(command)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            said[command] = done.stdout
        return said

    def _pip(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Offline, and into a folder of ours in place of the environment of the tests."""
        paths = {argument: str(self.folder / argument) for argument in arguments if (self.folder / argument).exists()}
        given = [paths.get(argument, argument) for argument in arguments if argument != "-e"]
        target = ["--target", str(self.folder / "site"), "--upgrade"] if verb == "install" else []
        pip = [sys.executable, "-m", "pip", verb, "--isolated", "--disable-pip-version-check", "--quiet"]
        return subprocess.run(
            [*pip, "--no-deps", "--no-index", "--no-build-isolation", *target, *given],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
