"""Columns of a table: what each holds, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from flagperf.export.recorded import Exported

Type = Literal["text", "integer", "real", "truth"]


class Column(msgspec.Struct, frozen=True):
    """Of a run."""

    name: str
    kind: Type
    value: Callable[[Exported], Any]
    """Its cell, None if it has none."""
