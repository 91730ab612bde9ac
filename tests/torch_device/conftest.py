from __future__ import annotations

from pathlib import Path

import pytest
from nova_machine import NovaMachine, installed_nova


@pytest.fixture(scope="session")
def nova_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_nova(tmp_path_factory)


@pytest.fixture
def nova(nova_site: Path, tmp_path: Path) -> NovaMachine:
    return NovaMachine(nova_site, tmp_path)
