"""Vendor tuning: data in the vendor's package, `<tuning folder>/<case>.toml`, for one card model and shape.

[[tuning]]
model = "A1-80GB"    # a name of models.toml
nodes = 1            # left out: any
devices = 8          # left out: any
profile = "standard" # that is the default
source = "where these values come from"
[tuning.values.training]  # tables and keys of the case, as `flagperf cases show CASE` lists them
batch_size = 96
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.api import DeviceBackend
from flagperf.errors import BadInput
from flagperf.files import exists
from flagperf.plan.settings import choose_profile
from flagperf.spec import Layer, Manifest, RunSpec, Values, read_toml


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    """A name of models.toml."""
    source: str
    """Where these values come from."""
    values: Values
    """Tables and keys of the case, as `flagperf cases show CASE` lists them."""
    nodes: int | None = None
    """Left out: any number of nodes."""
    devices: int | None = None
    """Of each node. Left out: any number."""
    profile: str = "standard"
    """The configuration of the case that this is for."""


class TuningFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tuning: tuple[Tuning, ...]


def tuning_layer(backend: DeviceBackend, model: str, spec: RunSpec, manifest: Manifest) -> Layer | None:
    """The vendor's values for these cards in this shape, with their source."""
    profile = choose_profile(spec, manifest)
    tuning = find_tuning(backend.tuning_folder(), manifest.name, model, spec.nodes, spec.devices, profile)
    if tuning is None:
        return None
    return Layer(f"tuning {backend.vendor} {model} ({tuning.source})", tuning.values, source="vendor")


def find_tuning(folder: Path | None, case: str, model: str, nodes: int, devices: int, profile: str) -> Tuning | None:
    """The entry that fits best: one that names the shape goes before one that does not."""
    path = folder / f"{case}.toml" if folder else None
    if path is None or not exists(path):
        return None
    fitting = [
        entry
        for entry in _read(path)
        if entry.model == model
        and entry.profile == profile
        and entry.nodes in (None, nodes)
        and entry.devices in (None, devices)
    ]
    return max(fitting, key=lambda entry: (entry.nodes is not None) + (entry.devices is not None), default=None)


def tuned_models(folder: Path | None) -> list[str]:
    """Every model with tuning for any case, without duplicates."""
    paths = sorted(folder.glob("*.toml")) if folder else []
    return list(dict.fromkeys(entry.model for path in paths for entry in _read(path)))


def _read(path: Path) -> tuple[Tuning, ...]:
    try:
        return msgspec.convert(read_toml(path), TuningFile).tuning
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from None
