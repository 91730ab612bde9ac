"""Published results of a case, in its case.toml or in references.toml beside it."""

from __future__ import annotations

from typing import Literal

import msgspec

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
