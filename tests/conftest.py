from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import browser
from flagperf.testing import shared_file

SLOW_FIXTURES = {"chromium", "mlflow_server", "hosts", "slurm", "podman", "image_archive"}
"""What starts a browser, a server, sshd, Slurm or containers: for `make test-all`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real data are not collected where there is none."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "shared_data" in fixtures:
            item.add_marker(pytest.mark.shared("data"))
        if SLOW_FIXTURES.intersection(fixtures):
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Small real data sets, which are not part of the repository."""
    return shared_file(__file__, "data")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A process can have one alone."""
    with browser() as started:
        yield started
