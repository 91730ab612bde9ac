"""pytest plugin, found by its entry point: the hardware tier, and tests of files that are not in the repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flagperf.testing.suite import Site, missing_material, open_site

LEFT_OUT = pytest.StashKey[list[str]]()
"""One reason for each test that is not collected because it reads files that are not here."""


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
    config.addinivalue_line("markers", "shared(path): reads this file of a folder `shared` beside the repository")
    config.addinivalue_line("markers", "none_yet: of an empty table of an adapter's suite; not collected")
    config.stash[LEFT_OUT] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `shared` whose files are not here, and those of a table that has no entry yet."""
    items[:] = [item for item in items if item.get_closest_marker("none_yet") is None]
    paths = {item: [path for mark in item.iter_markers("shared") for path in mark.args] for item in items}
    left_out = {item: why for item in items if (why := missing_material(item.path, paths[item]))}
    if left_out:
        config.stash[LEFT_OUT] += left_out.values()
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist, which collects for the one that prints
        session.config.workeroutput["flagperf_left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("flagperf_left_out", [])  # alike in all of them


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if why := config.stash[LEFT_OUT]:
        terminalreporter.write_line(f"{len(why)} tests of reference material are not collected: {why[0]}")


@pytest.fixture(scope="class")
def flagperf_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Open the place of a suite's hardware tests. It is not a method of Suite: pytest wants class methods there, which
    its older versions do not take."""
    on_real_cards = bool(request.config.getoption("--flagperf-hardware"))
    assert request.cls is not None
    with open_site(request.cls.rig, tmp_path_factory.mktemp("site"), on_real_cards) as site:
        yield site
