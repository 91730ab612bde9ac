"""pytest plugin, found by its entry point: the marker and the option of the hardware tier."""

from __future__ import annotations

import pytest


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
