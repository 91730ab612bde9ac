"""The packages that give names give the names that they say."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest

import flagperf

DOORS = ["flagperf.api", "flagperf.kit", "flagperf.worker", "flagperf.testing"]


@pytest.mark.parametrize("package", DOORS)
def test_every_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_flagperf_itself_gives_one_function_and_its_version() -> None:
    assert flagperf.__all__ == ["run_case", "version"]
    assert callable(flagperf.run_case)
    assert flagperf.__version__ == flagperf.version() == importlib.metadata.version("flagperf")
    with pytest.raises(AttributeError, match="no attribute 'run_everything'"):
        flagperf.run_everything  # noqa: B018
