"""The contract as data: what a plugin, a reader of event files and a reader of bundles build on.

Annotations are taken as they are written, so that the snapshot is the same on every version of Python.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from flagperf import api, events, hookspecs, kit, testing, worker
from flagperf.bundle.run_record import STORE_SCHEMA, RecordedRun

Description = Any
"""A text, a list of texts, or a dictionary of those."""


def snapshot() -> dict[str, dict[str, Description]]:
    """By the version number that guards it: its value, and what it stands for."""
    return {
        "EVENT_SCHEMA": {"version": events.EVENT_SCHEMA, "events": _structs(events.AnyEvent)},
        "STORE_SCHEMA": {"version": STORE_SCHEMA, "bundle": _structs(RecordedRun)},
    }


def hook_contract() -> dict[str, Description]:
    """What plugins rely on, by package."""
    return {
        "version": hookspecs.HOOK_API,
        "hooks": _hooks(),
        "api": {name: describe(getattr(api, name)) for name in api.__all__},
        "kit": {name: describe(getattr(kit, name)) for name in kit.__all__},
        "testing": dict.fromkeys(testing.__all__, ""),
        "case": {name: describe_for_callers(getattr(worker, name)) for name in worker.__all__},
    }


def describe(thing: Any) -> Description:
    """One public name."""
    if inspect.isclass(thing):
        return describe_class(thing)
    if callable(thing):
        return describe_function(thing)
    if isinstance(thing, tuple):
        return dict.fromkeys(map(str, thing), "")
    return {str(key): repr(value) for key, value in thing.items()}


def describe_function(function: Any) -> dict[str, Description]:
    """For functions that plugins call: one more parameter with a default changes nothing for them."""
    signature = inspect.signature(function)
    return {"parameters": list(map(str, signature.parameters.values())), "returns": str(signature.return_annotation)}


def describe_class(cls: type) -> dict[str, Description]:
    described: dict[str, Description] = {"bases": [base.__name__ for base in cls.__bases__ if base is not object]}
    if issubclass(cls, msgspec.Struct):
        described["fields"] = describe_fields(cls)
    else:
        described["attributes"] = {name: _attribute(cls, name) for name in inspect.get_annotations(cls)}
    described["methods"] = {
        name: _method(member) for name, member in sorted(vars(cls).items()) if _is_public_method(name, member)
    }
    return {name: value for name, value in described.items() if value}


def describe_for_callers(cls: type) -> dict[str, Description]:
    """A class that cases use and never extend: one more parameter with a default changes nothing for them."""
    methods = {name: member for name, member in sorted(vars(cls).items()) if _is_public_method(name, member)}
    return {
        "attributes": {name: _attribute(cls, name) for name in inspect.get_annotations(cls)},
        "methods": {name: describe_function(method) for name, method in methods.items()},
    }


def describe_fields(struct: type[msgspec.Struct]) -> list[str]:
    annotations, hints = _annotations(struct), typing.get_type_hints(struct)
    return [
        f"{field.name}: {_written(annotations[field.name], hints[field.name])}{_default(field)}"
        for field in msgspec.structs.fields(struct)
    ]


def _hooks() -> dict[str, str]:
    names = sorted(name for name in vars(hookspecs) if name.startswith("flagperf_"))
    return {name: str(inspect.signature(getattr(hookspecs, name))) for name in names}


def _structs(root: Any) -> dict[str, Description]:
    """Every struct that can be reached from a type, by its name."""
    found: dict[str, Description] = {}
    for struct in _reachable(root, set()):
        described: dict[str, Description] = {"fields": describe_fields(struct)}
        if struct.__struct_config__.tag is not None:
            described["tag"] = struct.__struct_config__.tag
        found[struct.__name__] = described
    return dict(sorted(found.items()))


def _reachable(kind: Any, seen: set[Any]) -> Iterator[type[msgspec.Struct]]:
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        if kind not in seen:
            seen.add(kind)
            yield kind
            for inner in typing.get_type_hints(kind).values():
                yield from _reachable(inner, seen)
        return
    for inner in typing.get_args(kind):
        yield from _reachable(inner, seen)


def _annotations(cls: type) -> dict[str, str]:
    merged: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        merged |= inspect.get_annotations(base)
    return merged


def _written(annotation: str, hint: Any) -> str:
    """Words behind an alias are part of the contract too."""
    words = sorted(set(_literals(hint)))
    return annotation if not words or "Literal" in annotation else f"{annotation} ({', '.join(words)})"


def _literals(hint: Any) -> Iterator[str]:
    if typing.get_origin(hint) is typing.Literal:
        yield from map(str, typing.get_args(hint))
    else:
        for inner in typing.get_args(hint):
            yield from _literals(inner)


def _default(field: msgspec.structs.FieldInfo) -> str:
    """Not what a function computes: that differs from machine to machine."""
    if field.default_factory is not msgspec.NODEFAULT:
        return f" = {field.default_factory()!r}" if isinstance(field.default_factory, type) else " = computed"
    if callable(field.default):
        return " = a function"
    return "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"


def _attribute(cls: type, name: str) -> str:
    annotation = str(inspect.get_annotations(cls)[name])
    if name not in cls.__dict__:
        return annotation
    value = cls.__dict__[name]
    return f"{annotation} = {'a function' if inspect.isfunction(value) else repr(value)}"


def _is_public_method(name: str, member: Any) -> bool:
    is_public = name == "__call__" or not name.startswith("_")
    return is_public and (inspect.isfunction(member) or isinstance(member, property))


def _method(member: Any) -> str:
    if isinstance(member, property):
        return f"property {inspect.signature(member.fget)}"
    abstract = "abstract " if getattr(member, "__isabstractmethod__", False) else ""
    return f"{abstract}{inspect.signature(member)}"


# What a change of a contract does to whatever was written before it.


@dataclass(frozen=True)
class Change:
    place: str
    what: str
    breaks: bool
    """True: a plugin that was written before may stop working. False: it has nothing to do."""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def changes(before: Any, now: Any, place: str = "") -> Iterator[Change]:
    """Between two descriptions of contracts, in a fixed order."""
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _changes_of_names(before, now, place)
    elif isinstance(before, list) and isinstance(now, list):
        yield from _changes_of_order(before, now, place)
    elif before != now:
        yield Change(place, f"{before!r} became {now!r}", breaks=True)


def _changes_of_names(before: dict[str, Any], now: dict[str, Any], place: str) -> Iterator[Change]:
    for name in before:
        inner = f"{place}.{name}".lstrip(".")
        if name not in now:
            yield Change(inner, "removed", breaks=True)
        else:
            yield from changes(before[name], now[name], inner)
    for name in now.keys() - before.keys():
        yield Change(f"{place}.{name}".lstrip("."), "added", breaks=_is_demanded(place, now[name]))


def _changes_of_order(before: list[str], now: list[str], place: str) -> Iterator[Change]:
    """Fields and parameters are also given by position: new ones follow the old ones, each with a default."""
    for index, item in enumerate(before):
        found = now[index] if index < len(now) else "nothing"
        if found != item:
            yield Change(place, f"{item!r} became {found!r}", breaks=True)
    for item in now[len(before) :]:
        yield Change(place, f"{item!r} added", breaks=" = " not in item)


def _is_demanded(place: str, description: Any) -> bool:
    """Whether plugins must give what was added: an abstract method, or an attribute without a default."""
    if place.endswith(".attributes"):
        return " = " not in description
    return place.endswith(".methods") and str(description).startswith("abstract ")
