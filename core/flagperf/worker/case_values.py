"""What a case is given and gives, in the form that it is used in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


def finite(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in values.items()}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"the case reported {name} = {value}; a result must be a finite number")
    return numbers


def to_device(value: Any, device: str) -> Any:
    """Tensors of a batch, however it is nested."""
    if isinstance(value, Mapping):
        return {name: to_device(item, device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device) for item in value)
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value


def namespace(value: Any) -> Any:
    """A tree of values, as attributes."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: namespace(item) for name, item in value.items()})
    return value
