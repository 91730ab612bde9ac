"""The vocabulary of published pages (`words.toml`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flagperf.spec import read_toml

Spellings = dict[str, tuple[str, ...]]


class Shapes(msgspec.Struct, frozen=True):
    machine: str
    card: str
    one: str
    numbers: dict[str, int]


class ImportedItem(msgspec.Struct, frozen=True):
    """A kind of base page whose figure a case has."""

    subject: str
    case: str
    figure: str
    """Where several cards were busy; `single` where one was."""
    single: str
    busy: str
    """What is said of that in place of overrides, as is `alone`."""
    alone: str


class Words(msgspec.Struct, frozen=True):
    default_value: str
    """A regular expression for the number in the list of batch sizes."""
    own_formula: str
    verdicts: tuple[str, ...]
    columns: Spellings
    general: Spellings
    facts: Spellings
    titles: Spellings
    shapes: Shapes
    overrides: Spellings
    defaults: dict[str, str]
    hardware: Spellings
    imports: tuple[ImportedItem, ...]


@functools.cache
def words() -> Words:
    return msgspec.convert(read_toml(Path(__file__).with_name("words.toml")), Words)


def folded(text: str) -> str:
    """For comparisons: without case, spaces and stars, with half-width brackets and colons."""
    text = text.translate(str.maketrans("（）：，", "():,")).lower()
    return re.sub(r"[\s*]", "", text)


def named(text: str, spellings: Mapping[str, Sequence[str]]) -> str:
    """The name that a text is a spelling of, or empty."""
    wanted = folded(text)
    return next((name for name, known in spellings.items() if wanted in map(folded, known)), "")
