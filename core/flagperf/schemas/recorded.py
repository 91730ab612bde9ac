"""Schemas of the files that a run leaves."""

from __future__ import annotations

from flagperf.events.schema import EVENT_SCHEMA, AnyEvent
from flagperf.schemas.structs import Schema, schema_of
from flagperf.spec import NodeFacts
from flagperf.store.run import STORE_SCHEMA, Run


def run_schema() -> Schema:
    schema = schema_of(Run)
    schema["properties"]["schema"] = {**schema["properties"]["schema"], "const": STORE_SCHEMA}
    return schema


def environment_schema() -> Schema:
    """What a node has in common with an earlier one is the index of that one."""
    schema = schema_of(tuple[NodeFacts, ...])
    node = schema["$defs"]["NodeFacts"]["properties"]
    node["environment"] = _or_index(node["environment"])
    node["vendors"] = {**node["vendors"], "items": _or_index(node["vendors"]["items"])}
    return schema


def _or_index(whole: Schema) -> Schema:
    return {"anyOf": [whole, {"type": "integer", "minimum": 0}]}


def events_schema() -> Schema:
    schema = schema_of(AnyEvent)
    for event in schema["$defs"].values():
        if "schema" in event.get("properties", {}):  # the first line of a file
            event["properties"]["schema"] = {"type": "integer", "const": EVENT_SCHEMA}
    return schema
