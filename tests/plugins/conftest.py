from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from distribution_builders import Site
from plugin_harness import DUMMIES, FlagPerf, install_dummies


@pytest.fixture(scope="session")
def dummies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with tests/dummies, which pip has installed for real, once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = shared / "dummies"
    with (shared / "dummies.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            install_dummies(shared / "installing-dummies", *DUMMIES.glob("*/")).rename(target)
    return target


@pytest.fixture(scope="session")
def flagperf(tmp_path_factory: pytest.TempPathFactory, dummies: Path) -> FlagPerf:
    return FlagPerf([dummies], tmp_path_factory.mktemp("empty"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty folder like site-packages, from which this process imports."""
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)
