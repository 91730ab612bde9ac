"""docs/add-a-vendor.md does what it says: its commands are run in their order, on simulated cards."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.kit import module_command

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-vendor.md").read_text(encoding="utf-8")
LAY_OUT = """
import json, pathlib, sys, test_acme_conformance as tests
print(json.dumps(tests.AcmeRig().lay_out(pathlib.Path(sys.argv[1])).environ()))
"""
SHORT = "[cases.distilbert.training]\nmax_steps = 8\n"
"""The reader's own file: the runs of the page take a few steps here."""
PLAN = "flagperf plan distilbert --vendor acme --devices 2"
FILES = (
    "__init__.py", "device.py", "smi.py", "memory.py", "launcher.py", "models.toml", "tuning/<case>.toml",
    "test_acme_conformance.py",
)  # fmt: skip
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]  # fmt: skip

pytestmark = pytest.mark.run


class Reader:
    """Someone who types what the page says, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cards: dict[str, str] = {}

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        program, *arguments = shlex.split(command)
        if program == "pip":
            return self._install(arguments[-1])
        if program == "python":
            program, arguments = arguments[1], arguments[2:]
        environ = {**os.environ, **self._cards, "PYTHONPATH": str(self.folder / "site")}
        return subprocess.run(
            [*module_command(sys.executable, program), *arguments],
            cwd=self.folder, env=environ, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip

    def gets_cards(self) -> None:
        """The machine of the package's own tests."""
        path = os.pathsep.join([str(self.folder / "site"), str(self.folder / "flagperf-acme" / "tests")])
        done = subprocess.run(
            [sys.executable, "-c", LAY_OUT, str(self.folder / "machine")],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True,
        )  # fmt: skip
        made = json.loads(done.stdout)
        self._cards = {name: made[name] for name in made if name == "PATH" or name.startswith("FLAGPERF_SIMULATE")}

    def _install(self, package: str) -> subprocess.CompletedProcess[str]:
        """Into a folder of ours in place of the environment of the tests."""
        return subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--isolated", "--disable-pip-version-check", "--quiet",
                "--no-deps", "--no-index", "--no-build-isolation", "--target", str(self.folder / "site"), package,
            ],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "flagperf.toml").write_text(SHORT)
    said = {}
    for command in COMMANDS:
        if command == "flagperf devices":
            reader.gets_cards()
        done = reader.types(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said[command] = done.stdout
    (offline,) = (output for command, output in said.items() if command.startswith("pytest "))
    assert "passed" in offline and "skipped" not in offline and "xfailed" not in offline
    assert said["flagperf vendors check acme"] == "acme: offline: pass; hardware: not run\n"
    assert said["flagperf vendors check acme --hardware"] == "acme (simulated): offline: pass; hardware: pass\n"
    assert "absent" in said["flagperf vendors list"]
    assert "GPU-11" in said["flagperf devices"] and "acme (simulated)" in said["flagperf devices"]
    plans = [output for command, output in said.items() if command.endswith(PLAN.removeprefix("flagperf "))]
    assert len(plans) == 2 and all("acme (simulated)" in plan for plan in plans)
    assert all("ACME_VISIBLE_DEVICES=0,1  # the cards of this run" in plan for plan in plans)
    assert "acme (simulated)" in said["flagperf run distilbert --vendor acme --devices 2"]


def test_the_page_has_ten_steps_and_names_every_file_that_is_written() -> None:
    assert re.findall(r"^## (\d+)\.", PAGE, flags=re.MULTILINE) == [str(step) for step in range(1, 11)]
    assert [name for name in FILES if name not in PAGE] == []
