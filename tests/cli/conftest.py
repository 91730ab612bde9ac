from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which commands look for runs and for flagperf.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLAGPERF_RUNS_DIR", raising=False)
    return tmp_path
