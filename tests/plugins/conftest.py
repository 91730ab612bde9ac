from __future__ import annotations

from pathlib import Path

import pytest
from plugin_harness import DUMMIES, FlagPerf, Site


@pytest.fixture(scope="session")
def dummies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders for PYTHONPATH with the modules of tests/dummies, and metadata as if they were installed."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.describe("flagperf-acme", "1.2.3", "acme = flagperf_acme").describe(
        "flagperf-toy", "0.3", "toy = flagperf_toy"
    )
    return [site.folder, DUMMIES / "acme" / "src", DUMMIES]


@pytest.fixture(scope="session")
def flagperf(tmp_path_factory: pytest.TempPathFactory, dummies: list[Path]) -> FlagPerf:
    return FlagPerf(dummies, tmp_path_factory.mktemp("empty"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty folder like site-packages, from which this process imports."""
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)
