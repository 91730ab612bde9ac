from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from web_runs import bundle_path


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Three runs: of two cases, one of them failed."""
    folder = tmp_path / "runs"
    for name in ("distilbert", "failed", "aquila_33b"):
        shutil.copytree(bundle_path(name), folder / bundle_path(name).name)
    return folder
