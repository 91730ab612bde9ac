"""Card models: what a vendor's adapter knows of its cards without seeing one."""

from __future__ import annotations

from typing import Literal

import msgspec


class Peak(msgspec.Struct, frozen=True):
    """A ceiling of one card model. `row` says of what."""

    model: str
    """`CardModel.name`."""
    row: str
    """A precision's peak row (fp32, tf32, fp16, bf16); `fp64`, `fp8` or `int8`, by which rows of products are rated (of
    matrix units, dense); `memory_bandwidth`; `link_bandwidth` (of all links of the card to others of its node together,
    in one direction; datasheets often add up both) or `tdp`. `host_link`, of the PCI link in one direction, is added by
    core where sysfs shows it."""
    value: float
    """In FLOP/s, integer operations/s, bytes/s or watts: 256 TFLOPS are 256e12, 624 TOPS are 624e12."""
    source: str
    """Where the figure comes from, so that others can check it."""
    confidence: Literal["high", "medium", "low"]
    """`low` counts for MFU only with --accept-low-peaks."""
    measured_by: str = ""
    """The run that measured it, with --peak-from. Adapters give rated figures and leave it empty."""


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
