from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from plugin_harness import FlagPerf, install_dummies

from flagperf.plugins import trial


def installed(factory: pytest.TempPathFactory, name: str, *dummies: str) -> Path:
    """A folder for PYTHONPATH with these of tests/dummies, made once for all workers of a session."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            install_dummies(shared / f"installing-{name}", *dummies).rename(target)
    return target


@pytest.fixture(autouse=True)
def harmless_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of pytest-xdist hold nothing that a fork would miss: plugins are tried in forks, as by the command."""
    monkeypatch.setattr(trial, "_has_harmless_threads", True)


@pytest.fixture(scope="session")
def flagperf(tmp_path_factory: pytest.TempPathFactory) -> FlagPerf:
    """With the plugins that are in order."""
    folder = installed(tmp_path_factory, "good-dummies", "good", "cases_dummy")
    return FlagPerf(folder, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> FlagPerf:
    """With all plugins, the broken ones too."""
    return FlagPerf(installed(tmp_path_factory, "all-dummies"), tmp_path_factory.mktemp("empty"))
