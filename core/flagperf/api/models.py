"""Card models: what a vendor's adapter knows of its cards without seeing one."""

from __future__ import annotations

from typing import Literal

import msgspec


class Peak(msgspec.Struct, frozen=True):
    """A ceiling of one card model. `row` is a precision's peak row, `memory_bandwidth` (bytes/s) or `tdp` (watts)."""

    model: str
    """`CardModel.name`."""
    row: str
    """A precision's peak row (fp32, tf32, fp16, bf16), `memory_bandwidth` or `tdp`."""
    value: float
    """In FLOP/s, bytes/s or watts: 256 TFLOPS are 256e12."""
    source: str
    """Where the figure comes from, so that others can check it."""
    confidence: Literal["high", "medium", "low"]
    """`low` counts for MFU only with --accept-low-peaks."""


class CardModel(msgspec.Struct, frozen=True):
    """What is known of a kind of card without seeing one."""

    name: str
    """What tables and peaks go by, and Device.model."""
    short_name: str
    """As pages print it."""
    name_pattern: str
    """A regular expression for what the card calls itself, from ^ to $."""
    pci_ids: tuple[str, ...]
    """PCI device ids that mean this model and no other."""
    peaks: tuple[Peak, ...]
    """What it can do at most; nothing where no figure has a source."""
    unsupported: dict[str, str] = {}
    """Peak row -> who says so."""
