"""What a rank will need of its card's memory, as the case estimates it: known before anything is launched."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput
from flagperf.plan.parallel import fit_layout
from flagperf.plan.settings import resolve_values
from flagperf.plan.tuning import find_tuning
from flagperf.plan.userfile import read_user_file
from flagperf.plugins import Plugins
from flagperf.spec import TUNING_LAYER, Layer, Manifest, Resolved, RunSpec


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Of the fullest rank. `total_bytes` is what the card has; None where nobody says it."""

    parts: dict[str, int]
    total_bytes: int | None
    total_source: str

    @property
    def used_bytes(self) -> int:
        return sum(self.parts.values())


class CardEstimate(msgspec.Struct, frozen=True):
    """For cards that need not be here."""

    case: str
    profile: str
    shape: str
    device_model: str
    config: Resolved
    memory: MemoryEstimate


def estimate_memory(
    manifest: Manifest, config: Resolved, total_bytes: int | None, source: str
) -> MemoryEstimate | None:
    """None for a case that does not estimate."""
    if manifest.estimate is None:
        return None
    module, _, name = manifest.estimate.partition(":")
    function: Callable[..., dict[str, int]] = getattr(importlib.import_module(module), name)
    return MemoryEstimate(function(config.values), total_bytes, source)


def estimate_for_model(spec: RunSpec, plugins: Plugins, device_model: str) -> CardEstimate:
    """As published unless a profile was asked for, with the tuning of the vendor that has such cards."""
    manifest = plugins.case(spec.case).manifest
    if manifest.estimate is None:
        raise BadInput(
            f"case {manifest.name} does not estimate its memory; leave --device-model out "
            f"(`{flagperf_command('plan', manifest.name)}`)"
        )
    spec = msgspec.structs.replace(spec, profile=spec.profile or _published(manifest), data_dir=spec.data_dir or "")
    assert spec.profile is not None
    tuning = _tuning(spec, plugins, device_model)
    config = fit_layout(resolve_values(spec, manifest, read_user_file(spec.config), tuning), spec)
    total_bytes, source = _published_memory(manifest, device_model)
    memory = estimate_memory(manifest, config, total_bytes, source)
    assert memory is not None
    return CardEstimate(
        case=manifest.name, profile=spec.profile, shape=f"{spec.nodes}x{spec.devices}", device_model=device_model,
        config=config, memory=memory,
    )  # fmt: skip


def _published(manifest: Manifest) -> str:
    names = [name for name, profile in manifest.profiles.items() if profile.published]
    return names[0] if names else manifest.default_profile


def _tuning(spec: RunSpec, plugins: Plugins, device_model: str) -> Layer | None:
    for given in plugins.device_backends():
        folder = given.thing.tuning_folder()
        tuning = find_tuning(folder, spec.case, device_model, spec.nodes, spec.devices, spec.profile or "")
        if tuning is not None:
            name = f"{TUNING_LAYER}{given.thing.vendor} {device_model} ({tuning.source})"
            return Layer(name, tuning.values, is_deviation=True)
    return None


def _published_memory(manifest: Manifest, device_model: str) -> tuple[int | None, str]:
    for reference in manifest.references:
        is_it = device_model.lower() in (reference.device.lower(), reference.device.split("-")[0].lower())
        if is_it and "mem_total" in reference.values:
            return int(reference.values["mem_total"]), f"nominal, of the published {reference.device}"
    return None, f"no published result of this case names {device_model}"
