"""The values of a case: the type of each is that of the case's default, its limits are in case.toml."""

from __future__ import annotations

from typing import Any

from flagperf.schemas.structs import Schema
from flagperf.spec import Manifest
from flagperf.spec.values import SHARED_LIMITS, Limit

TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def values_schema(case: Manifest) -> Schema:
    return _table(case, case.values, "")


def _table(case: Manifest, values: dict[str, Any], prefix: str) -> Schema:
    properties = {
        name: _table(case, value, f"{prefix}{name}.") if isinstance(value, dict) else _value(case, prefix + name, value)
        for name, value in values.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(case: Manifest, key: str, default: Any) -> Schema:
    schema = {"type": TYPES[type(default)], "default": default}
    if isinstance(default, list) and default:
        schema["items"] = {"type": TYPES[type(default[0])]}
    if key == "precision":
        schema["enum"] = list(case.precisions)
    limit = case.limits.get(key) or SHARED_LIMITS.get(key)
    return {**schema, **(_limits(limit) if limit is not None else {})}


def _limits(limit: Limit) -> Schema:
    said = {"minimum": limit.min, "exclusiveMinimum": limit.above, "maximum": limit.max}
    bounds = {name: value for name, value in said.items() if value is not None}
    return {**bounds, **({"enum": list(limit.choices)} if limit.choices else {})}
