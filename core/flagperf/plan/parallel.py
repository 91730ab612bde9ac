"""How a model is spread over devices: TPxPPyDPz, from --parallel or the keys parallel.tp, parallel.pp, parallel.dp.

0 means "fit it to the devices": TP2 (inside a node) and PP2 where the number of devices allows it, and data parallelism
over the rest. Where the other two are given, tensor parallelism takes the remaining devices.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from flagperf.errors import BadInput
from flagperf.spec import Layer, Manifest, Resolved, RunSpec, flatten, nest

_KEYS = ("parallel.tp", "parallel.pp", "parallel.dp")
_NAMES = ("TP", "PP", "DP")
_FORM = re.compile(r"(?=.)(?:TP(\d{1,6}))?(?:PP(\d{1,6}))?(?:DP(\d{1,6}))?", re.IGNORECASE | re.ASCII)


def parallel_layer(text: str, manifest: Manifest) -> Layer:
    """What --parallel asks for. TP and PP that are left out are 1, DP is what is left of the devices."""
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
    """How many devices a layout is for, at least."""
    tp, pp, dp = parse_parallel(text)
    return tp * pp * max(dp, 1)


def least_devices(values: dict[str, Any]) -> int:
    """How many devices the layout of these values needs, where it is not fitted to them."""
    flat = dict(flatten(values))
    return _product([flat.get(key, 1) for key in _KEYS])


def has_layout(values: dict[str, Any]) -> bool:
    flat = dict(flatten(values))
    return all(key in flat for key in _KEYS)


def layout_text(values: dict[str, Any]) -> str:
    """As --parallel takes it; empty for a case that has one layout."""
    if not has_layout(values):
        return ""
    return "".join(f"{name}{values['parallel'][name.lower()]}" for name in _NAMES)


def fit_layout(config: Resolved, spec: RunSpec) -> Resolved:
    """The same configuration with every 0 replaced. Raises BadInput where layout and devices do not go together."""
    if not has_layout(config.values):
        return config
    flat, num_all = dict(flatten(config.values)), spec.nodes * spec.devices
    asked = [flat[key] for key in _KEYS]
    ways = _fitted(asked, num_all, spec.devices)
    if ways[0] * ways[1] * ways[2] != num_all:
        wanted = "".join(f"{name}{way}" for name, way in zip(_NAMES, asked, strict=True) if way)
        needs = _product(asked)
        more = "" if all(asked) else "a multiple of "
        raise BadInput(
            f"the layout {wanted} needs {more}{needs} devices, and --nodes {spec.nodes} x --devices {spec.devices} is "
            f"{num_all}; change one of them (--parallel, or --set parallel.tp, parallel.pp, parallel.dp)"
        )
    _check_nodes(ways[0], spec)
    chosen = {key: way for key, way, was in zip(_KEYS, ways, asked, strict=True) if not was}
    layers = {**config.layers, **dict.fromkeys(chosen, f"fits {num_all} devices")}
    deviations = {key: layer for key, layer in config.deviations.items() if key not in chosen}
    return msgspec.structs.replace(config, values=nest({**flat, **chosen}), layers=layers, deviations=deviations)


def _check_nodes(tp: int, spec: RunSpec) -> None:
    """Tensor parallel ranks are neighbours: groups of them fill nodes, or nodes fill a group."""
    if spec.nodes > 1 and spec.devices % tp and tp % spec.devices:
        raise BadInput(
            f"parallel.tp={tp} does not fit nodes of {spec.devices} devices: some of its groups would lie across two "
            "nodes, some not; choose a number that divides --devices, or a multiple of it"
        )


def _fitted(asked: list[int], num_all: int, per_node: int) -> list[int]:
    ways = list(asked)
    if not ways[0] and ways[1] and ways[2]:
        ways[0] = max(1, num_all // (ways[1] * ways[2]))
    for index, available in ((0, per_node), (1, num_all)):
        others = _product([way for other, way in enumerate(ways) if other != index])
        fits_two = available % 2 == 0 and num_all % (2 * others) == 0
        ways[index] = ways[index] or (2 if fits_two else 1)
    ways[2] = ways[2] or max(1, num_all // (ways[0] * ways[1]))
    return ways


def _product(ways: list[int]) -> int:
    product = 1
    for way in ways:
        product *= way or 1
    return product
