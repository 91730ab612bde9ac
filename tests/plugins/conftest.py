from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from plugin_harness import FlagPerf, install_dummies


@pytest.fixture(scope="session")
def plugins_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with all of tests/dummies, made once for all workers of a session."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = shared / "installed-dummies"
    with (shared / "installed-dummies.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            install_dummies(shared / "installing-dummies").rename(target)
    return target


@pytest.fixture(scope="session")
def flagperf(plugins_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> FlagPerf:
    return FlagPerf(plugins_folder, tmp_path_factory.mktemp("empty"))
