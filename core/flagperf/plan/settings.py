"""What a case is run with: profile, layered values, precision."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.api import DeviceBackend, Precision, precision
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, Unsupported, unknown_name
from flagperf.plan.parallel import fit_layout, parallel_layer
from flagperf.plan.userfile import UserFile
from flagperf.spec import Layer, Manifest, Resolved, RunSpec, parse_assignment, resolve


class CaseSettings(msgspec.Struct, frozen=True):
    profile: str
    config: Resolved
    precision: Precision


def make_settings(
    spec: RunSpec, manifest: Manifest, user_file: UserFile, backend: DeviceBackend, tuning: Layer | None
) -> CaseSettings:
    profile = choose_profile(spec, manifest)
    config = fit_layout(resolve_values(spec, manifest, user_file, tuning), spec)
    return CaseSettings(profile, config, _precision(config, manifest, backend))


def choose_profile(spec: RunSpec, manifest: Manifest) -> str:
    name = spec.profile or manifest.default_profile
    if name not in manifest.profiles:
        raise unknown_name(f"profile of case {manifest.name}", name, manifest.profiles)
    return name


def published_profile(manifest: Manifest) -> str:
    """The one that published results belong to, else the case's default."""
    names = [name for name, profile in manifest.profiles.items() if profile.published]
    return names[0] if names else manifest.default_profile


def missing_data(spec: RunSpec, manifest: Manifest) -> str:
    """The problem, where the profile reads files and no folder was given."""
    name = choose_profile(spec, manifest)
    if spec.data_dir is not None or not manifest.profiles[name].needs_data_dir:
        return ""
    return (
        f"profile {name} of case {manifest.name} reads real data: give --data-dir "
        f"(`{flagperf_command('cases', 'show', manifest.name)}` lists what has to be there)"
    )


def resolve_values(spec: RunSpec, manifest: Manifest, user_file: UserFile, tuning: Layer | None) -> Resolved:
    _refuse_too_few(spec, manifest)
    profile = choose_profile(spec, manifest)
    layers = [Layer(f"profile {profile}", manifest.profiles[profile].values)]
    if tuning is not None:
        layers.append(tuning)
    if manifest.name in user_file.cases:
        layers.append(Layer(f"file {user_file.path}", user_file.cases[manifest.name], source="user"))
    if spec.parallel is not None:
        layers.append(parallel_layer(spec.parallel, manifest))
    if spec.set:
        layers.append(Layer("--set", _assignments(spec.set), source="user"))
    if spec.precision is not None:
        layers.append(Layer("--precision", {"precision": precision(spec.precision).name}, source="user"))
    return resolve(manifest, layers)


def _refuse_too_few(spec: RunSpec, manifest: Manifest) -> None:
    if spec.nodes * spec.devices < manifest.min_devices:
        raise BadInput(
            f"case {manifest.name} needs at least {manifest.min_devices} devices, and --nodes {spec.nodes} x --devices "
            f"{spec.devices} is {spec.nodes * spec.devices}; give --devices {manifest.min_devices}"
        )


def _assignments(texts: tuple[str, ...]) -> dict[str, Any]:
    pairs = [parse_assignment(text) for text in texts]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"--set gives {key} more than once")
    return dict(pairs)


def _precision(config: Resolved, manifest: Manifest, backend: DeviceBackend) -> Precision:
    chosen = precision(config.values["precision"])
    offers = {f"case {manifest.name}": manifest.precisions, f"vendor {backend.vendor}": backend.precisions}
    for who, offered in offers.items():
        if chosen.name not in offered and not (chosen.is_per_row and offered is backend.precisions):
            raise Unsupported(f"{who} does not support precision {chosen.name}; it has: {', '.join(offered)}")
    return chosen


def refuse_unsupported(chosen: Precision, backend: DeviceBackend, model: str) -> None:
    """A precision that the vendor supports, but not on this model."""
    lacking = backend.unsupported(model)
    if chosen.peak_row in lacking:
        others = [name for name in backend.precisions if precision(name).peak_row not in lacking]
        raise Unsupported(
            f"{backend.vendor} {model} does not support precision {chosen.name} ({lacking[chosen.peak_row]}); "
            f"it has: {', '.join(others)}"
        )
