"""Structs with their texts visited by what they are, as FIELDS says."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from flagperf.redact.fields import FIELDS, PLAIN_PROPERTIES, Use
from flagperf.redact.pseudonyms import Findings, Pseudonyms

S = TypeVar("S")

_TEXTS = ("text", "texts_by_text")

Visit = Callable[[Use, str], str]
"""Takes what a text is, and the text; gives what stands in its place."""


def visited(value: S, visit: Visit) -> S:
    """The same struct, or list of structs, with every text visited. What has none is given back as it is."""
    return _visited(value, visit)  # type: ignore[no-any-return]


def gather(findings: Findings) -> Visit:
    """A visit that changes nothing."""

    def visit(use: Use, text: str) -> str:
        if use in _TEXTS:
            findings.search(text)
        elif use == "setting":
            findings.add(use, text.partition("=")[2])
        elif use != "path" or text.startswith("/"):
            findings.add(use, text)
        return text

    return visit


def replace(names: Pseudonyms) -> Visit:
    def visit(use: Use, text: str) -> str:
        if use == "setting":
            name, equals, value = text.partition("=")
            return f"{name}{equals}{names.value(value)}"
        found = text if use in _TEXTS else names.value(text)
        return names.text(text) if found == text else found

    return visit


def _visited(value: Any, visit: Visit) -> Any:
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name, use in _fields_of(type(value)):
            before = getattr(value, name)
            after = _visited(before, visit) if use is None else _used(use, before, visit)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, tuple | list):
        found = [_visited(each, visit) for each in value]
        return _same_or(value, type(value)(found))
    if isinstance(value, dict):
        return _same_or(value, {key: _visited(each, visit) for key, each in value.items()})
    return value


def _used(use: Use, value: Any, visit: Visit) -> Any:
    """All texts in a value that is of one use. Keys are names of ours or of the case, unless they are texts as well."""
    if isinstance(value, str):
        return visit(use, value) if value and use != "harmless" else value
    if isinstance(value, msgspec.Struct):
        return _visited(value, visit)
    if isinstance(value, tuple | list):
        return _same_or(value, type(value)([_used(use, each, visit) for each in value]))
    if isinstance(value, dict) and use == "properties":
        found = {name: _used(_property(name, str(each)), each, visit) for name, each in value.items()}
        return _same_or(value, found)
    if isinstance(value, dict):
        left = ("code",) if set(value) == _MESSAGE else ()  # a message inside a message
        keys = {key: visit(use, key) if use == "texts_by_text" else key for key in value}
        items = {keys[key]: each if key in left else _used(use, each, visit) for key, each in value.items()}
        return _same_or(value, items)
    return value


_MESSAGE = {"code", "params"}


def _property(name: str, value: str) -> Use:
    """Of no use: a number or a version, unless its name says that it is an address."""
    if _VERSION.fullmatch(value) and not _ADDRESS.search(name):
        return "harmless"
    return "text" if name in PLAIN_PROPERTIES else "serial"


_VERSION = re.compile(r"v?[0-9]{1,4}(?:\.[0-9]{1,6}){1,3}(?:[-+_][A-Za-z0-9]{1,8})?")
_ADDRESS = re.compile(r"addr|host|(?:^|_)ip", re.IGNORECASE)


def _same_or(before: Any, after: Any) -> Any:
    """`before` itself if nothing changed, so that most events need no copy."""
    return before if before == after else after


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, Use | None], ...]:
    """Fields to look into, with their use; None for structs inside. Harmless ones and witnesses are left out. A struct
    that is not in the table raises KeyError: nothing of it would be looked at."""
    uses = FIELDS[kind.__name__]
    inside = [field.name for field in msgspec.structs.fields(kind) if _has_structs(field.type)]
    looked_at: list[tuple[str, Use | None]] = [
        (name, use) for name, use in uses.items() if use not in ("harmless", "witness")
    ]
    return (*looked_at, *((name, None) for name in inside if uses.get(name) in (None, "harmless")))


def _has_structs(kind: Any) -> bool:
    arguments = getattr(kind, "__args__", ())
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return is_struct or any(map(_has_structs, arguments))
