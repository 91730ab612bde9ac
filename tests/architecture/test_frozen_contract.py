"""Recorded runs outlive the code that they were made with: no silent change of what their readers rely on."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import pytest
from contract_snapshot import PLACES, describe_class, describe_fields, snapshot

RECORDED = Path(__file__).parent / "contract.json"
UPDATE = "FLAGPERF_UPDATE_CONTRACT"


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Written anew first, where that is asked for."""
    if os.environ.get(UPDATE) == "1":
        RECORDED.write_text(_text(snapshot()))
    return dict(json.loads(RECORDED.read_text()))


@pytest.mark.parametrize("number", PLACES)
def test_nothing_changes_without_its_version_number(number: str, recorded: dict[str, Any]) -> None:
    now = snapshot()[number]
    if now != recorded[number]:
        pytest.fail(explain(number, recorded[number], now), pytrace=False)


def explain(number: str, recorded: dict[str, Any], now: dict[str, Any]) -> str:
    lines = difflib.unified_diff(_text(recorded).splitlines(), _text(now).splitlines(), "recorded", "now", n=2)
    if now["version"] == recorded["version"]:
        advice = f"{number} in {PLACES[number]} is still {now['version']}: move it, as its docstring says when"
    else:
        advice = f"{number} has moved from {recorded['version']} to {now['version']}"
    return (
        f"what {number} stands for has changed; {advice}. Then add the change to docs, conformance suite, built-in and "
        f"one vendor, and write the snapshot anew:\n"
        f"    {UPDATE}=1 pytest tests/architecture/{Path(__file__).name}\n\n" + "\n".join(lines)
    )


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


# The checker itself


class Before(msgspec.Struct):
    id: str
    size: int | None = None
    tags: dict[str, str] = {}


class Renamed(msgspec.Struct):
    name: str
    size: int | None = None
    tags: dict[str, str] = {}


class Reordered(msgspec.Struct):
    id: str
    tags: dict[str, str] = {}
    size: int | None = None


class Redefaulted(msgspec.Struct):
    id: str
    size: int | None = 0
    tags: dict[str, str] = {}


class Retyped(msgspec.Struct):
    id: str
    size: float | None = None
    tags: dict[str, str] = {}


def test_fields_are_described_as_they_are_written() -> None:
    assert describe_fields(Before) == ["id: str", "size: int | None = None", "tags: dict[str, str] = {}"]


@pytest.mark.parametrize("changed", [Renamed, Reordered, Redefaulted, Retyped])
def test_every_change_of_a_field_is_a_difference(changed: type[msgspec.Struct]) -> None:
    assert describe_fields(changed) != describe_fields(Before)


Colour = Literal["red", "blue"]


class Aliased(msgspec.Struct):
    colours: tuple[Colour, ...] = ()


def test_words_behind_an_alias_are_described() -> None:
    assert describe_fields(Aliased) == ["colours: tuple[Colour, ...] (blue, red) = ()"]


class Role:
    word: ClassVar[str]
    unit: ClassVar[str] = "B"

    def use(self, what: str, times: int = 1) -> bool: ...

    @property
    def size(self) -> int: ...

    def _inside(self) -> None: ...


def test_attributes_methods_and_properties_are_described_and_private_ones_are_not() -> None:
    assert describe_class(Role) == {
        "attributes": {"word": "ClassVar[str]", "unit": "ClassVar[str] = 'B'"},
        "methods": {
            "use": "(self, what: 'str', times: 'int' = 1) -> 'bool'",
            "size": "property (self) -> 'int'",
        },
    }


def test_snapshot_covers_the_events_and_the_bundle() -> None:
    now = snapshot()
    assert {"StepFinished", "Clock", "Reading"} <= set(now["EVENT_SCHEMA"]["events"])
    assert now["EVENT_SCHEMA"]["events"]["StepFinished"]["tag"] == "step_finished"
    assert {"Run", "Job", "Manifest", "Metric", "NodeFacts", "Device"} <= set(now["STORE_SCHEMA"]["bundle"])


def test_the_message_says_which_number_to_move_and_how_to_write_the_snapshot_anew() -> None:
    message = explain("EVENT_SCHEMA", {"version": 1, "events": {"a": "()"}}, {"version": 1, "events": {"a": "(b)"}})
    assert "EVENT_SCHEMA in core/flagperf/events/schema.py is still 1: move it" in message
    assert "FLAGPERF_UPDATE_CONTRACT=1 pytest tests/architecture/test_frozen_contract.py" in message
    assert '-  "a": "()"' in message and '+  "a": "(b)"' in message


def test_a_number_that_has_moved_asks_for_the_snapshot_only() -> None:
    assert "EVENT_SCHEMA has moved from 1 to 2" in explain("EVENT_SCHEMA", {"version": 1}, {"version": 2})
