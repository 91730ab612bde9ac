"""Whether this machine can be more than one: root, its namespaces, and the packages of the real things."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
"""Daemons are in folders that not every PATH has."""


def needs_root_and(*programs: str) -> None:
    """Skips the test, with the reason, where something is missing. In CI that is a failure: `.ci/run` installs all."""
    if reason := _missing(programs):
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def program(name: str) -> str:
    """Its full path: sshd for one insists on being started by that."""
    path = shutil.which(name, path=SYSTEM_PATH)
    assert path, name
    return path


def _missing(programs: tuple[str, ...]) -> str:
    if os.geteuid() != 0:
        return "needs root, for namespaces and daemons of its own"
    absent = [name for name in programs if not shutil.which(name, path=SYSTEM_PATH)]
    if absent:
        return f"{', '.join(absent)} not found; .ci/run names the packages"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"root without the right to make namespaces: {tried.stderr.strip()}" if tried.returncode else ""
