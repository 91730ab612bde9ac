"""The parent calls a plugin's code through the guard alone."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagperf.api import Allocation, Cluster, DeviceBackend, Launcher
from flagperf.plugins import load_plugins
from flagperf.plugins.guard import Guarded

CORE = Path(__file__).parents[2] / "core" / "flagperf"
PARENT = [
    *(path for part in ("plan", "fleet", "launch", "report", "cli") for path in sorted((CORE / part).rglob("*.py"))),
    CORE / "run.py",
]
CONTRACTS = (Allocation, Cluster, DeviceBackend, Launcher)
METHODS = {
    name
    for kind in CONTRACTS
    for name, value in vars(kind).items()
    if not name.startswith("_") and isinstance(value, types.FunctionType)
}


def unguarded(source: str) -> Iterator[str]:
    """Calls of a method of the contract on what a hook gave (`.value`), and what gives such an object itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "device_backend":
            yield f"line {node.lineno}: device_backend gives the plugin's own object; use guarded_backend"
        if isinstance(node, ast.Attribute) and node.attr in METHODS and _is_value(node.value):
            yield f"line {node.lineno}: {ast.unparse(node)} is not guarded; use .guarded(...)"


def _is_value(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "value"


@pytest.mark.parametrize("path", PARENT, ids=lambda path: str(path.relative_to(CORE)))
def test_no_method_of_a_plugin_is_called_without_the_guard(path: Path) -> None:
    assert list(unguarded(path.read_text())) == []


def test_the_checker_sees_calls_that_are_not_guarded() -> None:
    assert len(list(unguarded("given.value.peaks()\nplugins.device_backend('x').peaks()"))) == 2
    assert not list(unguarded("given.value.vendor\ngiven.guarded(DeviceBackend).peaks()"))


def test_what_the_registry_gives_to_the_parent_is_guarded() -> None:
    plugins = load_plugins()
    for given in (plugins.cluster("local"), plugins.launcher("cpu"), plugins.guarded_backend("cpu")):
        assert isinstance(given, Guarded)
    with plugins.allocation("local", 2) as allocation:
        assert isinstance(allocation, Guarded)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_guard_knows_what_every_method_has_to_give(contract: type) -> None:
    for name in METHODS & set(vars(contract)):
        assert "return" in typing.get_type_hints(getattr(contract, name)), f"{contract.__name__}.{name}"
