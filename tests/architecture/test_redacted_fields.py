"""Every text that the files of a bundle can hold is classified in passing/text_fields.py, so that no new field is
passed on before somebody has said what it may hold."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from flagperf.api import Recording
from flagperf.bundle.run_record import Run
from flagperf.events import AnyEvent
from flagperf.spec.node_facts import NodeFacts
from flagperf_publish.passing.text_fields import FIELDS

IN_A_BUNDLE = (Run, NodeFacts, AnyEvent, Recording)


def text_fields(*roots: Any) -> dict[str, set[str]]:
    """Struct -> its fields that hold text, for all structs that these reach."""
    found: dict[str, set[str]] = {}
    for root in roots:
        _walk(inspect.type_info(root), found)
    return found


def _walk(kind: inspect.Type, found: dict[str, set[str]]) -> None:
    if isinstance(kind, inspect.StructType):
        if kind.cls.__name__ in found:
            return
        found[kind.cls.__name__] = {field.name for field in kind.fields if _holds_text(field.type)}
        for field in kind.fields:
            _walk(field.type, found)
    for inner in _inner(kind):
        _walk(inner, found)


def _inner(kind: inspect.Type) -> list[inspect.Type]:
    several = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    return several + [getattr(kind, name) for name in ("item_type", "key_type", "value_type") if hasattr(kind, name)]


def _holds_text(kind: inspect.Type) -> bool:
    """A Literal is a word of ours. A struct inside answers for itself."""
    is_text = isinstance(kind, inspect.StrType | inspect.AnyType | inspect.BytesType | inspect.RawType)
    return is_text or any(map(_holds_text, _inner(kind)))


def test_every_text_of_a_bundle_is_classified() -> None:
    known = {kind: set(fields) for kind, fields in FIELDS.items()}
    found = text_fields(*IN_A_BUNDLE)
    missing = {
        kind: fields - known.get(kind, set())
        for kind, fields in found.items()
        if kind not in known or fields - known[kind]
    }
    assert missing == {}, "say in passing/text_fields.py what they may hold"
    gone = {kind: fields - found.get(kind, set()) for kind, fields in known.items() if fields - found.get(kind, set())}
    assert gone == {}, "remove them from passing/text_fields.py"
    assert set(known) == set(found)
