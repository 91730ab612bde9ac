"""A command in a message is typed as it stands: by whoever has this flagperf on PATH, and by whoever has not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from flagperf.text import flagperf_command, pip_command

SCRIPTS = Path(sysconfig.get_path("scripts"))


def script(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def own_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this Python keeps its scripts."""
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path / "own"))
    for name in ("flagperf", "pip"):
        script(tmp_path / "own", name)
    return tmp_path / "own"


def test_what_path_finds_is_called_by_its_name(own_scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{own_scripts}:/usr/bin")
    assert flagperf_command("runs", "list") == "flagperf runs list"
    assert pip_command("install", "torch") == "pip install torch"


def test_a_link_to_it_is_it_and_so_is_the_script_that_was_started(
    own_scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "flagperf").symlink_to(own_scripts / "flagperf")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert flagperf_command() == "flagperf"
    started = script(tmp_path / "elsewhere", "flagperf")
    monkeypatch.setattr(sys, "argv", [str(started), "runs", "list"])
    monkeypatch.setenv("PATH", str(started.parent))
    assert flagperf_command() == "flagperf"


@pytest.mark.parametrize("on_path", ["another", "none"])
def test_where_path_finds_none_or_another_the_python_is_named(
    own_scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / on_path))
    for name in ("flagperf", "pip"):
        script(tmp_path / "another", name)
    assert flagperf_command("runs", "list") == f"{sys.executable} -m flagperf runs list"
    assert pip_command("list") == f"{sys.executable} -m pip list"


def test_words_are_quoted_for_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/my tools/python")
    command = flagperf_command("report", Path("it's here"), "flagperf[run]")
    assert shlex.split(command) == ["/my tools/python", "-m", "flagperf", "report", "it's here", "flagperf[run]"]
    assert "'flagperf[run]'" in command


@pytest.mark.parametrize("path", ["/usr/bin:/bin", f"{SCRIPTS}:/usr/bin:/bin"])
def test_the_command_of_a_message_works_as_typed(path: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": path}
    failed = subprocess.run(
        [sys.executable, "-m", "flagperf", "run", "distilbert", "--set", "nonsense=1"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    _, command, _ = failed.stderr.split("`")
    done = subprocess.run(
        ["bash", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "training.batch_size" in done.stdout
