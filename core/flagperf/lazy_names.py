"""Lazy names of a package: `from package import Name` imports the module that has Name, and no other one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for the package (PEP 562): public name -> absolute name of the module that defines it."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return get


def lazy_modules(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The same, given the package's modules and the names that each of them gives."""
    names = {name: f"{package}.{module}" for module, names in modules.items() for name in names}
    return lazy_names(package, names)
