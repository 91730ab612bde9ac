"""Vendor tuning: data in the vendor's package, `<tuning folder>/<case>.toml`, for one card model and shape.

[[tuning]]
model = "C500"
nodes = 1            # left out: any
devices = 8          # left out: any
profile = "standard" # that is the default
source = "where these values come from"
[tuning.values.training]
batch_size = 96
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.spec import Values, read_toml


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    source: str
    values: Values
    nodes: int | None = None
    devices: int | None = None
    profile: str = "standard"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tuning: tuple[Tuning, ...]


def find_tuning(folder: Path | None, case: str, model: str, nodes: int, devices: int, profile: str) -> Tuning | None:
    """The entry that fits best: one that names the shape goes before one that does not."""
    path = folder / f"{case}.toml" if folder else None
    if path is None or not path.exists():
        return None
    try:
        entries = msgspec.convert(read_toml(path), _File).tuning
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from None
    fitting = [
        entry
        for entry in entries
        if entry.model == model
        and entry.profile == profile
        and entry.nodes in (None, nodes)
        and entry.devices in (None, devices)
    ]
    return max(fitting, key=lambda entry: (entry.nodes is not None) + (entry.devices is not None), default=None)
