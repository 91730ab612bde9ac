"""Plain bounds are compared without the library packaging, and mean what they mean there."""

from __future__ import annotations

import itertools

import pytest
from packaging.requirements import Requirement

from flagperf.errors import PluginRefused
from flagperf.plugins.core_range import check_core_range

VERSIONS = ("0.1.0", "0.1", "0.9", "1.0.0", "1.2.3", "10.0")
BOUNDS = ("", ">=0.1.0", ">=1", "<1.0", "<=1.2.3", ">0.9,<2", ">= 0.1 , < 1", ">=1.2,<1.2.3", ">1.0")


def accepts(requirement: str, version: str) -> bool:
    try:
        check_core_range([requirement], version)
    except PluginRefused as refused:
        assert str(refused).startswith("it needs flagperf") and str(refused).endswith(f"this is {version}")
        return False
    return True


@pytest.mark.parametrize(("bound", "version"), list(itertools.product(BOUNDS, VERSIONS)))
def test_plain_bounds_mean_what_they_mean_to_pip(bound: str, version: str) -> None:
    text = f"FlagPerf[run]{bound}"
    assert accepts(text, version) == Requirement(text).specifier.contains(version, prereleases=True)


@pytest.mark.parametrize(
    ("requirement", "version", "is_fine"),
    [
        ("flagperf~=1.2", "1.9", True),
        ("flagperf~=1.2", "2.0", False),
        ("flagperf==1.*", "1.9", True),
        ("flagperf!=1.9", "1.9", False),
        ("flagperf (>=1)", "0.9", False),
        ("flagperf>=1", "1.0.dev3", False),
        ("flagperf>=1", "1.1rc1", True),
        ("flagperf>=9; python_version < '3'", "1.0", True),
        ("flagperf-acme>=9", "1.0", True),
        ("torch>=9", "1.0", True),
    ],
)
def test_all_else_is_left_to_packaging(requirement: str, version: str, is_fine: bool) -> None:
    assert accepts(requirement, version) is is_fine


@pytest.mark.parametrize("requirement", ["flagperf >>> 1", "flagperf>=1,,<2", "flagperf>=1 <2", "???"])
def test_what_is_no_requirement_is_refused(requirement: str) -> None:
    with pytest.raises(PluginRefused, match="invalid requirement"):
        check_core_range([requirement], "1.0")
