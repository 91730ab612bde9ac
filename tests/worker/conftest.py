from __future__ import annotations

import pytest
from context_fakes import World


@pytest.fixture
def world() -> World:
    return World()
