from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import browser
from flagperf.testing import shared_file


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real data are not collected where there is none."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared("data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Small real data sets, which are not part of the repository."""
    return shared_file(__file__, "data")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A process can have one alone."""
    with browser() as started:
        yield started
