"""Published results of a case, in its case.toml or in references.toml beside it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from flagperf.errors import BadInput, unknown_name

Grade = Literal["recomputable", "logged", "typed_by_hand"]
"""How well a published result is founded: a bundle, a log, or a page alone."""


class PublishedResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published result of this case. `values` are in the units of the metrics (bytes, fractions)."""

    vendor: str
    device: str
    nodes: int
    devices_per_node: int
    precision: str
    overrides: str
    source: str
    values: dict[str, float] = {}
    parallel: str = ""
    """TPxPPyDPz, if the case has a layout."""
    engine: str = ""
    """Inference engine."""
    grade: Grade = "typed_by_hand"
    line: int = 0
    """Of `source`, where it was imported from a page; `sha256` is that of the page."""
    sha256: str = ""


class PublishedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Published values of single rows, as a table."""

    vendor: str
    device: str
    row: str
    """Name of the rows."""
    source: str
    """A label in braces stands for its text: `operation/{operator}.md`."""
    where: dict[str, str] = {}
    """Labels that all of these rows have."""
    by: tuple[str, ...] = ()
    """Labels that tell them apart: the texts at the beginning of every line of `values`."""
    values: tuple[tuple[str | float, ...], ...] = ()
    """A line for each row: its labels, then its value, in the unit of the row (seconds, bytes)."""


class References(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """references.toml. Only what shows published results reads it."""

    references: tuple[PublishedResult, ...] = ()
    published_rows: tuple[PublishedRows, ...] = ()


PUBLISHED = "published:"
"""What the command line has before a name."""

_NOTHING = ("", "/", "none", "per-row")

_OTHERS = re.compile(r"[^a-z0-9._=]+")

MAX_WORDS = 40
"""Characters of what was changed."""


def published_names(case: str, references: Iterable[PublishedResult]) -> dict[str, PublishedResult]:
    """Return the results by name. Those of one name that do not contradict each other are merged, as a page for each
    figure was published; a further one gets a number."""
    found: dict[str, PublishedResult] = {}
    for reference in references:
        if not reference.values:
            continue
        name = numbered = published_name(case, reference)
        number = 1
        while numbered in found and found[numbered].values.keys() & reference.values.keys():
            number += 1
            numbered = f"{name}-{number}"
        if (known := found.get(numbered)) is not None:
            sources = ", ".join(dict.fromkeys([*known.source.split(", "), reference.source]))
            reference = msgspec.structs.replace(known, values={**known.values, **reference.values}, source=sources)
        found[numbered] = reference
    return found


def find_published(wanted: str, names: Collection[str]) -> str:
    """Return the name that is wanted: itself, its beginning, or some of its words, as in `A100 1x8 bs=96`. Raises
    BadInput unless it is exactly one."""
    text = wanted.strip().lower()
    if text in names:
        return text
    words = _words(text)
    begun = [name for name in names if name.startswith(text)]
    whole = [name for name in names if _words(name) - _words(name.partition("-")[0]) == words]
    matches = (begun or whole or [name for name in names if words <= _words(name)]) if text else []
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise unknown_name("published result", wanted, names)
    some = ", ".join(sorted(matches)[:6])
    raise BadInput(f"{PUBLISHED + wanted!r} is ambiguous: {some}{' ...' if len(matches) > 6 else ''}; give more of it")


def _words(name: str) -> set[str]:
    return set(filter(None, _OTHERS.split(name)))


def published_name(case: str, reference: PublishedResult) -> str:
    """Return a readable name, stable as long as what was published does not change. It has case, vendor, device, shape,
    precision, layout and what was changed: `distilbert-acme-a1-40gb-1x8-fp32-bs=96`."""
    shape = f"{reference.nodes}x{reference.devices_per_node}"
    changed = "" if reference.overrides in _NOTHING else reference.overrides.partition(";")[0][:MAX_WORDS]
    words = [case, reference.vendor, reference.device, shape, reference.precision, reference.parallel, changed]
    return "-".join(_OTHERS.sub("-", word.lower()).strip("-.") for word in words if word not in _NOTHING)
