from __future__ import annotations

from pathlib import Path

import pytest
from nova_machine import NovaMachine, install_nova, made_once


@pytest.fixture(scope="session")
def nova_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "nova", install_nova)


@pytest.fixture
def nova(nova_site: Path, tmp_path: Path) -> NovaMachine:
    return NovaMachine(nova_site, tmp_path)
