"""The functions that a case.toml names have the types that flagperf.api gives them."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

from flagperf.api import CheckFiles, EstimateMemory, ListContents
from flagperf.plugins.installed import load_plugins

CASES = load_plugins().cases()
NAMED = [
    *((case.manifest.check_files, CheckFiles) for case in CASES.values() if case.manifest.check_files),
    *((case.manifest.estimate, EstimateMemory) for case in CASES.values() if case.manifest.estimate),
    *((case.manifest.listing, ListContents) for case in CASES.values() if case.manifest.listing),
]


def types_of(function: Callable[..., Any]) -> list[Any]:
    """Of the parameters that are given by position, then of the answer."""
    hints = typing.get_type_hints(function)
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return [*(hints[name] for name in names), hints["return"]]


@pytest.mark.parametrize(("reference", "protocol"), NAMED)
def test_our_cases_keep_to_the_types(reference: str, protocol: Any) -> None:
    module, _, name = reference.partition(":")
    assert types_of(getattr(importlib.import_module(module), name)) == types_of(protocol.__call__)


def test_all_kinds_of_function_are_in_use() -> None:
    assert {protocol for _, protocol in NAMED} == {CheckFiles, EstimateMemory, ListContents}
