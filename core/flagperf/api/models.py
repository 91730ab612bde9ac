"""Card models: what a vendor's adapter knows of its cards without seeing one."""

from __future__ import annotations

from typing import Literal

import msgspec


class Peak(msgspec.Struct, frozen=True):
    """A ceiling of one card model. `row` is a precision's peak row, `memory_bandwidth` (bytes/s) or `tdp` (watts)."""

    model: str
    row: str
    value: float
    source: str
    confidence: Literal["high", "medium", "low"]


class CardModel(msgspec.Struct, frozen=True):
    name: str
    short_name: str
    name_pattern: str
    pci_ids: tuple[str, ...]
    peaks: tuple[Peak, ...]
    unsupported: dict[str, str] = {}
    """Peak row -> who says so."""
