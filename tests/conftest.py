from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import browser

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Small real data sets, which are not part of the repository. A test that needs them skips where there are none.

    In CI on a machine that is meant to have them, their absence is a failure.
    """
    folder = Path(os.environ.get("FLAGPERF_TEST_DATA") or REPOSITORY / "../shared/data").resolve()
    if not folder.is_dir():
        message = f"no real data at {folder} (FLAGPERF_TEST_DATA names another place)"
        if os.environ.get("CI") == "true" and (REPOSITORY / "../shared").is_dir():
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A process can have one alone."""
    with browser() as started:
        yield started
