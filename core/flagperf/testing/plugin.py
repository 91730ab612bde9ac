"""pytest plugin, found by its entry point: what the hardware tier needs of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flagperf.testing.suite import Site


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--flagperf-hardware",
        action="store_true",
        default=False,
        help="run tests marked `hardware` on this machine's cards instead of simulated ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "run: starts real worker processes with torch")
    config.addinivalue_line("markers", "hardware: uses cards: real ones with --flagperf-hardware, else simulated ones")


@pytest.fixture(scope="class")
def flagperf_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Of a suite. Not a method of it: pytest wants those of a class to be class methods, which its older versions do
    not take."""
    from flagperf.testing.suite import open_site  # only here: this module is imported wherever pytest runs

    on_real_cards = bool(request.config.getoption("--flagperf-hardware"))
    assert request.cls is not None
    with open_site(request.cls.rig, tmp_path_factory.mktemp("site"), on_real_cards) as site:
        yield site
