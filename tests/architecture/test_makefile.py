"""`make demo` on machines that are not ready for it: one message, and nothing left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(folder: Path, target: str, python: Path) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return subprocess.run(
        ["make", target, f"PYTHON={python}"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def python_that(folder: Path, script: str) -> Path:
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n{script}\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("target", ["demo", "test"])
def test_a_python_without_venv_gets_one_clear_message(tmp_path: Path, target: str) -> None:
    python = python_that(tmp_path, 'case "$2" in *ensurepip*) exit 1;; esac')
    done = make(tmp_path, target, python)
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_gets_one_clear_message(tmp_path: Path) -> None:
    python = python_that(tmp_path, 'case "$2" in *version_info*) exit 1;; esac')
    done = make(tmp_path, "demo", python)
    assert done.returncode != 0
    assert "needs Python 3.10 or later" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_torch_of_the_constraints_is_the_one_that_is_installed() -> None:
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (pinned,) = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    assert f"'{pinned}'" in printed
