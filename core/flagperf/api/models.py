"""Card models as data: `models.toml` in the vendor's package.

[[model]]
name = "A1-80GB"                       # what tables and peaks go by
short_name = "A1"                      # what pages print
name_pattern = "^(ACME )?A1-80GB$"     # anchored: a substring would take A1X for A1
pci_ids = ["0a01"]                     # where one PCI device id means one model; left out: names alone decide
unsupported = { tf32 = "who says so" } # peak rows of precisions in which a run on this card is refused
[[model.peak]]
row = "bf16"                           # a precision's peak row (fp32, tf32, fp16, bf16), `fp64`, `fp8` or `int8` of
                                       # products (of matrix units, dense), `memory_bandwidth`, `tdp`, or
                                       # `link_bandwidth`: all links of a card to others of its node, in ONE direction
value = 280e12                         # in FLOP/s, bytes/s or watts, of one Device: a chip, where a card has several
source = "where the figure comes from"
confidence = "medium"                  # high, medium or low
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from flagperf.errors import BadInput


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
    """A kind of card, as known without seeing one."""

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


def find_model(models: Sequence[CardModel], names: Sequence[str], pci_id: str = "") -> CardModel | None:
    """Return the model by PCI device id if one has it, else by what the card calls itself. An unknown card has no
    model."""
    by_id = next((model for model in models if pci_id and pci_id in model.pci_ids), None)
    if by_id is not None:
        return by_id
    return next((model for model in models if any(re.fullmatch(model.name_pattern, name) for name in names)), None)


def read_models(path: Path) -> tuple[CardModel, ...]:
    try:
        entries = msgspec.toml.decode(path.read_bytes(), type=ModelsFile).model
        models = []
        for entry in entries:
            re.compile(entry.name_pattern)
            peaks = tuple(Peak(entry.name, peak.row, peak.value, peak.source, peak.confidence) for peak in entry.peak)
            model = CardModel(entry.name, entry.short_name, entry.name_pattern, entry.pci_ids, peaks, entry.unsupported)
            models.append(model)
        return tuple(models)
    except (msgspec.MsgspecError, re.error) as error:
        raise BadInput(f"{path}: {error}") from None


class PeakEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: str
    """A precision's peak row (fp32, tf32, fp16, bf16), `fp64`, `fp8` or `int8` of products (of matrix units, dense),
    `memory_bandwidth`, `tdp`, or `link_bandwidth`: all links of a card to others of its node, in one direction."""
    value: float
    """In FLOP/s, bytes/s or watts, of one device: a chip, where a card has several."""
    source: str
    """Where the figure comes from."""
    confidence: Literal["high", "medium", "low"]
    """`low` counts for MFU only with --accept-low-peaks."""


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """What tables and peaks go by."""
    short_name: str
    """What pages print."""
    name_pattern: str
    """A regular expression for what the card calls itself, from ^ to $."""
    pci_ids: tuple[str, ...] = ()
    """PCI device ids that mean this model and no other. Left out: names alone decide."""
    peak: tuple[PeakEntry, ...] = ()
    unsupported: dict[str, str] = {}
    """Peak row of a precision in which a run on this card is refused -> who says so."""


class ModelsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[ModelEntry, ...]
