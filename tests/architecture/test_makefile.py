"""The set-up that `make demo` and `make test` do: on machines that are not ready, after an interruption, beside an
active environment, with adapters. Nothing is installed: a Python that only pretends stands in for the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
READ = ("VERSION", "constraints.txt", "pyproject.toml")
"""What an environment is made from."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what the set-up reads."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Makefile", *READ):
        shutil.copy(ROOT / name, folder)
    return folder


def make(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VIRTUAL_ENV", "PYTHON")
    }
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def python_that(folder: Path, script: str) -> Path:
    """This Python, after `script` has looked at the arguments."""
    path = folder / "python"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{script}\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def would_run(folder: Path, *arguments: str, **environ: str) -> str:
    done = make(folder, "--dry-run", *arguments, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Machines that are not ready


@pytest.mark.parametrize(
    ("target", "lacks", "said"),
    [
        ("demo", "ensurepip", "apt-get install python3-venv"),
        ("dist", "ensurepip", "apt-get install python3-venv"),
        ("demo", "version_info", "needs Python 3.10 or later"),
    ],
)
def test_a_python_that_cannot_do_it_gets_one_clear_message(
    project: Path, tmp_path: Path, target: str, lacks: str, said: str
) -> None:
    python = python_that(tmp_path, f'case "$2" in *{lacks}*) exit 1;; esac')
    done = make(project, target, f"PYTHON={python}")
    assert done.returncode != 0
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not (project / ".venv").exists()


# Which Python, which torch


def test_an_active_environment_is_the_one_that_is_seen_through(project: Path, tmp_path: Path) -> None:
    active = python_that(tmp_path / "active" / "bin", "")
    printed = would_run(project, "demo", VIRTUAL_ENV=str(tmp_path / "active"))
    assert f"setting up .venv with {active} " in printed


def test_our_own_environment_does_not_make_itself(project: Path) -> None:
    python_that(project / ".venv" / "bin", "")
    assert "setting up .venv with python3 " in would_run(project, "demo", VIRTUAL_ENV=str(project / ".venv"))
    assert "setting up .venv with python3 " in would_run(project, "demo", VIRTUAL_ENV=str(project / "removed"))


def test_torch_of_an_environment_beside_is_seen_through_and_not_installed(project: Path, tmp_path: Path) -> None:
    """The other environment has a torch that the new one cannot see; pip is made to fail where it is asked for one."""
    packages = tmp_path / "other" / "site-packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("")
    (packages / "torch-9.9.dist-info").mkdir()
    (packages / "torch-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    site = tmp_path / "site"
    site.mkdir()
    own = f'case "$*" in *"pip --version"*) exit 0;; *pip*install*) exit 7;; *purelib*) echo "{site}"; exit 0;; esac'
    addsitedir = f"import site; site.addsitedir({str(site)!r})"
    python = python_that(project / ".venv" / "bin", own)
    python.write_text(f'#!/bin/sh\n{own}\n[ "$1" = -c ] && exec "{sys.executable}" -S -c "{addsitedir}; $2"\nexit 7\n')
    other = python_that(tmp_path / "other", f'export PYTHONPATH="{packages}"')
    done = make(project, "demo", f"PYTHON={other}")
    assert done.returncode != 0  # at the first thing to install, which is not torch
    assert str(packages) in (site / "see_through.pth").read_text()
    assert (project / ".venv" / "constraints.txt").read_text().endswith("torch==9.9\n"), done.stderr


# Interruptions, and the second time


def test_an_interrupted_set_up_is_begun_anew(project: Path, tmp_path: Path) -> None:
    venv = project / ".venv"
    python_that(venv / "bin", "")
    (venv / "half-a-torch").touch()
    (venv / ".unfinished").touch()
    done = make(project, "demo", f"PYTHON={python_that(tmp_path, 'case $2 in venv) exit 9;; esac')}")
    assert done.returncode != 0
    assert not (venv / "half-a-torch").exists()
    assert (venv / ".unfinished").exists()


def test_the_second_half_of_a_set_up_can_be_interrupted_too(project: Path) -> None:
    (project / ".venv").mkdir()
    for name in (".run", ".dev", ".unfinished"):
        (project / ".venv" / name).touch()
    assert "setting up .venv" in would_run(project, "lint")


@pytest.mark.parametrize("is_link", [True, False])
def test_an_environment_whose_python_is_gone_is_begun_anew(project: Path, tmp_path: Path, is_link: bool) -> None:
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    if is_link:
        (venv / "bin" / "python").symlink_to(tmp_path / "removed")
    (venv / "leftover").touch()
    make(project, "demo", f"PYTHON={python_that(tmp_path, 'case $2 in venv) exit 9;; esac')}")
    assert not (venv / "leftover").exists()


def test_an_environment_that_works_is_kept_and_marked_while_it_is_filled(project: Path) -> None:
    venv = project / ".venv"
    python_that(venv / "bin", 'case "$*" in *pip*) exit 7;; esac')
    (venv / "of-the-user").touch()
    done = make(project, "demo", f"PYTHON={sys.executable}")
    assert done.returncode != 0
    assert (venv / "of-the-user").exists() and (venv / ".unfinished").exists()
    assert not (venv / ".run").exists()


def test_a_second_time_installs_nothing(project: Path) -> None:
    (project / ".venv").mkdir()
    for name in (".run", ".dev", ".mlflow"):
        (project / ".venv" / name).touch()
    for name in (".venv-dist", ".venv-docs"):
        (project / name).mkdir()
        (project / name / ".ready").touch()
    assert would_run(project, "demo") == ".venv/bin/flagperf run distilbert\n"
    assert "install" not in would_run(project, "test")


# Adapters


def test_adapters_are_installed_checked_and_built_with_the_rest(project: Path) -> None:
    for word in ("acme", "zeta"):
        (project / "plugins" / word / "src").mkdir(parents=True)
        (project / "plugins" / word / "pyproject.toml").touch()
    (project / "plugins" / "notes").mkdir()
    printed = would_run(project, "--always-make", "test")
    assert "-e plugins/acme -e plugins/zeta\n" in printed
    assert "MYPYPATH=plugins/acme/src:plugins/zeta/src " in printed
    assert printed.count("mypy core cases bench plugins/acme/src plugins/zeta/src\n") == 1
    assert "for folder in . plugins/acme plugins/zeta; do" in would_run(project, "dist")


def test_a_new_adapter_is_installed_the_next_time(project: Path) -> None:
    mark, adapter = project / ".venv" / ".run", project / "plugins" / "acme" / "pyproject.toml"
    for path in (mark, adapter):
        path.parent.mkdir(parents=True)
        path.touch()
    for path in (*(project / name for name in READ), adapter):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    os.utime(mark, (1_100_000_000, 1_100_000_000))
    assert would_run(project, "demo") == ".venv/bin/flagperf run distilbert\n"
    os.utime(adapter, (1_200_000_000, 1_200_000_000))
    assert "-e plugins/acme\n" in would_run(project, "demo")
