"""The JSON schema of a struct, with what its source says about each attribute."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from flagperf.attribute_docs import attributes_of, class_node

Schema = dict[str, Any]


def schema_of(kind: Any) -> Schema:
    """Of a struct, or of anything that is made of structs. What it refers to is in `$defs`, by the structs' names."""
    (root,), found = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = {name: dict(schema) for name, schema in found.items()}
    for struct in set(_structs(kind, set())):
        _describe(definitions[struct.__name__], struct)
    if set(root) == {"$ref"}:
        root = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**root, **({"$defs": definitions} if definitions else {})}


def _structs(hint: Any, seen: set[type]) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        seen.add(hint)
        yield hint
        for field in typing.get_type_hints(hint).values():
            yield from _structs(field, seen)
    for part in typing.get_args(hint):
        yield from _structs(part, seen)


def _describe(schema: Schema, struct: type[msgspec.Struct]) -> None:
    schema.pop("description", None)
    try:
        text, docs = _docstring(struct), _attribute_docs(struct)
    except OSError:  # an installation without its source
        return
    if text:
        schema["description"] = text
    for name, doc in docs.items():
        if name in schema.get("properties", {}):
            schema["properties"][name] = {**schema["properties"][name], "description": doc}


def _docstring(struct: type) -> str:
    import ast

    return _one_line(ast.get_docstring(class_node(struct)) or "")


def _attribute_docs(struct: type) -> dict[str, str]:
    """Its own and those that it inherits."""
    declaring = struct.__mro__[: struct.__mro__.index(msgspec.Struct)]
    found = [attribute for each in reversed(declaring) for attribute in attributes_of(each)]
    return {attribute.name: _one_line(attribute.doc) for attribute in found if attribute.doc}


def _one_line(text: str) -> str:
    return " ".join(text.split())
