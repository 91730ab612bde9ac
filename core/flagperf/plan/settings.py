"""Decide what a case is run with: profile, layered values, precision, layout."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DeviceBackend, Precision, precision
from flagperf.errors import BadInput, Unsupported, unknown_name
from flagperf.files import exists
from flagperf.plugins.installed import Plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.toml_files import read_toml
from flagperf.spec.user_file import UserFile, read_user_file
from flagperf.spec.values import Layer, Resolved, Values, flatten, nest, parse_assignment, resolve
from flagperf.text import flagperf_command

UNKNOWN = "?"
"""Stands in a plan for a value that depends on the node."""

# How a model is spread over devices: TPxPPyDPz, from --parallel or the keys parallel.tp, parallel.pp, parallel.dp.
#
# 0 means "fit it to the devices": TP2 (inside a node) and PP2 where the number of devices allows it, and data
# parallelism over the rest. Where the other two are given, tensor parallelism takes the remaining devices.


_KEYS = ("parallel.tp", "parallel.pp", "parallel.dp")

_NAMES = ("TP", "PP", "DP")

_FORM = re.compile(r"(?=.)(?:TP(\d{1,6}))?(?:PP(\d{1,6}))?(?:DP(\d{1,6}))?", re.IGNORECASE | re.ASCII)


def parallel_layer(text: str, manifest: Manifest) -> Layer:
    """Return what --parallel asks for. TP and PP that are left out are 1, DP is what is left of the devices."""
    if not has_layout(manifest.values):
        raise BadInput(f"case {manifest.name} has one layout, plain data parallelism; leave --parallel out")
    tp, pp, dp = parse_parallel(text)
    # The rest of the group, such as layers per stage, goes back to the case's own: it was meant for another layout.
    layout = {**manifest.values["parallel"], "tp": tp, "pp": pp, "dp": dp}
    return Layer("--parallel", {"parallel": layout}, source="user")


def parse_parallel(text: str) -> tuple[int, int, int]:
    found = _FORM.fullmatch(text.strip())
    if found is None or any(part is not None and int(part) < 1 for part in found.groups()):
        raise BadInput(f"--parallel takes TP, PP and DP, each with a number from 1 on, as TP4PP8DP1; got {text!r}")
    tp, pp, dp = (None if part is None else int(part) for part in found.groups())
    return tp or 1, pp or 1, dp or 0


def num_devices(text: str) -> int:
    """Return how many devices a layout needs at least."""
    tp, pp, dp = parse_parallel(text)
    return tp * pp * max(dp, 1)


def least_devices(values: dict[str, Any]) -> int:
    """Return how many devices the layout of these values needs; parts that are fitted count as 1."""
    flat = dict(flatten(values))
    return math.prod(flat.get(key, 1) or 1 for key in _KEYS)


def has_layout(values: dict[str, Any]) -> bool:
    flat = dict(flatten(values))
    return all(key in flat for key in _KEYS)


def layout_text(values: dict[str, Any]) -> str:
    """Return the layout as --parallel takes it; empty for a case that has one layout."""
    if not has_layout(values):
        return ""
    return "".join(f"{name}{values['parallel'][name.lower()]}" for name in _NAMES)


def fit_layout(config: Resolved, spec: RunSpec) -> Resolved:
    """Return the configuration with every 0 replaced. Raises BadInput if layout and devices do not go together."""
    if not has_layout(config.values):
        return config
    flat, num_all = dict(flatten(config.values)), spec.nodes * spec.devices
    asked = [flat[key] for key in _KEYS]
    ways = _fitted(asked, num_all, spec.devices)
    if ways[0] * ways[1] * ways[2] != num_all:
        wanted = "".join(f"{name}{way}" for name, way in zip(_NAMES, asked, strict=True) if way)
        needs = math.prod(way or 1 for way in asked)
        more = "" if all(asked) else "a multiple of "
        raise BadInput(
            f"the layout {wanted} needs {more}{needs} devices, and --nodes {spec.nodes} x --devices {spec.devices} is "
            f"{num_all}; change one of them (--parallel, or --set parallel.tp, parallel.pp, parallel.dp)"
        )
    tp = ways[0]
    if spec.nodes > 1 and spec.devices % tp and tp % spec.devices:
        # Tensor parallel ranks are neighbours: groups of them fill nodes, or nodes fill a group.
        raise BadInput(
            f"parallel.tp={tp} does not fit nodes of {spec.devices} devices: some of its groups would lie across two "
            "nodes, some not; choose a number that divides --devices, or a multiple of it"
        )
    chosen = {key: way for key, way, was in zip(_KEYS, ways, asked, strict=True) if not was}
    layers = {**config.layers, **dict.fromkeys(chosen, f"fits {num_all} devices")}
    deviations = {key: layer for key, layer in config.deviations.items() if key not in chosen}
    return msgspec.structs.replace(config, values=nest({**flat, **chosen}), layers=layers, deviations=deviations)


def _fitted(asked: list[int], num_all: int, per_node: int) -> list[int]:
    ways = list(asked)
    if not ways[0] and ways[1] and ways[2]:
        ways[0] = max(1, num_all // (ways[1] * ways[2]))
    for index, available in ((0, per_node), (1, num_all)):
        others = math.prod(way or 1 for other, way in enumerate(ways) if other != index)
        fits_two = available % 2 == 0 and num_all % (2 * others) == 0
        ways[index] = ways[index] or (2 if fits_two else 1)
    ways[2] = ways[2] or max(1, num_all // (ways[0] * ways[1]))
    return ways


class CaseSettings(msgspec.Struct, frozen=True):
    profile: str
    config: Resolved
    precision: Precision


def make_settings(
    spec: RunSpec, manifest: Manifest, user_file: UserFile, backend: DeviceBackend, tuning: Layer | None
) -> CaseSettings:
    config = fit_layout(resolve_values(spec, manifest, user_file, tuning), spec)
    chosen = precision(config.values["precision"])
    offers = {f"case {manifest.name}": manifest.precisions, f"vendor {backend.vendor}": backend.precisions}
    for who, offered in offers.items():
        if chosen.name not in offered and not (chosen.is_per_row and offered is backend.precisions):
            raise Unsupported(f"{who} does not support precision {chosen.name}; it has: {', '.join(offered)}")
    return CaseSettings(choose_profile(spec, manifest), config, chosen)


def choose_profile(spec: RunSpec, manifest: Manifest) -> str:
    name = spec.profile or manifest.default_profile
    if name not in manifest.profiles:
        raise unknown_name(f"profile of case {manifest.name}", name, manifest.profiles)
    return name


def published_profile(manifest: Manifest) -> str:
    """Return the profile that published results belong to, else the case's default."""
    names = [name for name, profile in manifest.profiles.items() if profile.published]
    return names[0] if names else manifest.default_profile


def missing_data(spec: RunSpec, manifest: Manifest) -> str:
    """Return the problem if the profile reads files and no folder was given, else an empty text."""
    name = choose_profile(spec, manifest)
    if spec.data_dir is not None or not manifest.profiles[name].needs_data_dir:
        return ""
    return (
        f"profile {name} of case {manifest.name} reads real data: give --data-dir "
        f"(`{flagperf_command('cases', 'show', manifest.name)}` lists what has to be there)"
    )


def resolve_values(spec: RunSpec, manifest: Manifest, user_file: UserFile, tuning: Layer | None) -> Resolved:
    if spec.nodes * spec.devices < manifest.min_devices:
        raise BadInput(
            f"case {manifest.name} needs at least {manifest.min_devices} devices, and --nodes {spec.nodes} x --devices "
            f"{spec.devices} is {spec.nodes * spec.devices}; give --devices {manifest.min_devices}"
        )
    profile = choose_profile(spec, manifest)
    layers = [Layer(f"profile {profile}", manifest.profiles[profile].values)]
    if tuning is not None:
        layers.append(tuning)
    if manifest.name in user_file.cases:
        layers.append(Layer(f"file {user_file.path}", user_file.cases[manifest.name], source="user"))
    if spec.parallel is not None:
        layers.append(parallel_layer(spec.parallel, manifest))
    if spec.set:
        pairs = [parse_assignment(text) for text in spec.set]
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise BadInput(f"--set gives {key} more than once")
        layers.append(Layer("--set", dict(pairs), source="user"))
    if spec.precision is not None:
        layers.append(Layer("--precision", {"precision": precision(spec.precision).name}, source="user"))
    return resolve(manifest, layers)


def refuse_unsupported(chosen: Precision, backend: DeviceBackend, model: str) -> None:
    """Raise Unsupported for a precision that the vendor supports, but not on this model."""
    lacking = backend.unsupported(model)
    if chosen.peak_row in lacking:
        others = [name for name in backend.precisions if precision(name).peak_row not in lacking]
        raise Unsupported(
            f"{backend.vendor} {model} does not support precision {chosen.name} ({lacking[chosen.peak_row]}); "
            f"it has: {', '.join(others)}"
        )


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
    # `<tuning folder>/<case>.toml` in the vendor's package

    tuning: tuple[Tuning, ...]


def tuning_layer(backend: DeviceBackend, model: str, spec: RunSpec, manifest: Manifest) -> Layer | None:
    """Return the vendor's values for these cards in this shape, with their source."""
    profile = choose_profile(spec, manifest)
    tuning = find_tuning(backend.tuning_folder(), manifest.name, model, spec.nodes, spec.devices, profile)
    if tuning is None:
        return None
    return Layer(f"tuning {backend.vendor} {model} ({tuning.source})", tuning.values, source="vendor")


def find_tuning(folder: Path | None, case: str, model: str, nodes: int, devices: int, profile: str) -> Tuning | None:
    """Return the entry that fits best: one that names the shape goes before one that does not."""
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
    """Return every model with tuning for any case, without duplicates."""
    paths = sorted(folder.glob("*.toml")) if folder else []
    return list(dict.fromkeys(entry.model for path in paths for entry in _read(path)))


def _read(path: Path) -> tuple[Tuning, ...]:
    try:
        return msgspec.convert(read_toml(path), TuningFile).tuning
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from None


def case_file(spec: RunSpec, plugins: Plugins) -> UserFile:
    """Read the file that a request names. Raises BadInput for cases and clusters in it that do not exist."""
    user_file = read_user_file(spec.config)
    tables = (("case", user_file.cases, plugins.cases()), ("cluster", user_file.clusters, plugins.cluster_names()))
    for kind, given, known in tables:
        for name in given:
            if name not in known:
                where = f"(in {user_file.path}, table [{kind}s.{name}])"
                hint = plugins.hint(f"flagperf_{kind}s")
                raise unknown_name(kind, name, known, f"{where} {hint}" if hint else where)
    return user_file
