"""Layered configuration: case default, profile, vendor tuning, the user's file, the command line.

The merged result records for every value the layer it came from. The case's default decides the type of a value. A key
that the case does not have is an error in every layer.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.spec.toml_files import NotToml, parse_toml
from flagperf.text import flagperf_command

if TYPE_CHECKING:
    from flagperf.spec.manifest import Manifest

Values = dict[str, Any]
"""A tree of configuration values; leaves are bool, int, float, str or a list of those."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Restricts a value, in addition to the type of its default."""

    min: float | None = None
    above: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()


SHARED_PAGE_NAMES = {
    "training.batch_size": "bs",
    "training.learning_rate": "lr",
    "training.accumulate": "GAS",
    "inference.batch_size": "bs",
}
"""Key -> its short name on published pages, for keys that all cases share."""

SHARED_LIMITS = {
    "training.batch_size": Limit(min=1),
    "training.learning_rate": Limit(above=0),
    "training.accumulate": Limit(min=1),
    "training.max_steps": Limit(min=0),
    "training.warmup_steps": Limit(min=0),
    "training.epochs": Limit(min=1),
    "training.seed": Limit(min=0, max=2**32 - 1),
    "inference.batch_size": Limit(min=1),
    "inference.warmup_steps": Limit(min=0),
    "evaluation.batch_size": Limit(min=1),
    "parallel.tp": Limit(min=0),
    "parallel.pp": Limit(min=0),
    "parallel.dp": Limit(min=0),
}


class Layer(msgspec.Struct, frozen=True):
    """`name` is what `flagperf plan` prints: `case`, `profile tiny`, `tuning acme`, `file flagperf.toml`, `--set`."""

    name: str
    values: Values
    source: Literal["case", "vendor", "user"] = "case"
    """Who owns the layer. Reports list the changes by vendor and user."""


class Resolved(msgspec.Struct, frozen=True):
    values: Values
    layers: dict[str, str]
    """Dotted key -> name of the layer that set its value."""
    deviations: dict[str, str]
    """Key whose value differs from case and profile -> name of the layer that changed it."""
    user_layers: tuple[str, ...] = ()
    """Names of the user's layers. A run without deviations by them has the published values."""

    @property
    def user_deviations(self) -> tuple[str, ...]:
        """Return the keys that the user changed."""
        return tuple(key for key, layer in self.deviations.items() if layer in self.user_layers)


def resolve(manifest: Manifest, layers: Sequence[Layer]) -> Resolved:
    """Merge the layers over the case's defaults. Later layers win."""
    merged = dict(flatten(manifest.values))
    origin = dict.fromkeys(merged, "case")
    standard = dict(merged)
    for layer in layers:
        for key, value in flatten(layer.values):
            merged[key] = _checked(manifest, key, value, merged, layer.name)
            origin[key] = layer.name
        if layer.source == "case":
            standard = dict(merged)
    changed = {key: origin[key] for key in merged if merged[key] != standard[key]}
    users = tuple(layer.name for layer in layers if layer.source == "user")
    return Resolved(nest(merged), origin, changed, users)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def nest(flat: Mapping[str, Any]) -> Values:
    tree: Values = {}
    for key, value in flat.items():
        *parents, leaf = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = value
    return tree


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split `training.batch_size=8` into key and value. The value is parsed as TOML, else taken as a string."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    may_be_empty = option.endswith("-option")  # a text of flagperf.toml that is not wanted this time
    if not equals or not key or not (raw or may_be_empty) or "\n" in text:
        example = "partition=debug" if option.endswith("-option") else "training.batch_size=8"
        raise BadInput(f"{option} takes key=value, for example {example}; got {text!r}")
    try:
        value = parse_toml(f"value = {raw}")["value"]
    except NotToml:
        return key, raw
    except ValueError as error:
        raise BadInput(f"{option} {key}: {error}; got {raw!r}") from None
    return key, raw if isinstance(value, (datetime.date, datetime.time)) else value  # to the user, 01:30:00 is a text


def page_name(manifest: Manifest, key: str) -> str:
    return manifest.page_names.get(key) or SHARED_PAGE_NAMES.get(key) or key


def _checked(manifest: Manifest, key: str, value: Any, known: Mapping[str, Any], layer: str) -> Any:
    if key not in known:
        inside = [name for name in known if name.startswith(key + ".")]
        hint = f"({layer}; `{flagperf_command('cases', 'show', manifest.name)}` lists all keys)"
        if inside:
            raise BadInput(f"{key!r} is a group of keys, not a value: {', '.join(inside)} {hint}")
        raise unknown_name(f"key of case {manifest.name}", key, known, hint)
    value = _typed(key, value, known[key], layer)
    limit = manifest.limits.get(key) or SHARED_LIMITS.get(key) or Limit()
    problem = ""
    if limit.choices and value not in limit.choices:
        problem = f"one of {', '.join(limit.choices)}"
    elif isinstance(value, int | float):
        if limit.min is not None and not value >= limit.min:
            problem = f"at least {limit.min:g}"
        elif limit.above is not None and not value > limit.above:
            problem = f"above {limit.above:g}"
        elif limit.max is not None and not value <= limit.max:
            problem = f"at most {limit.max:g}"
    if problem:
        raise BadInput(f"{key} must be {problem}; got {value!r} from {layer}")
    return value


def _typed(key: str, value: Any, default: Any, layer: str) -> Any:
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default) or (isinstance(value, float) and not math.isfinite(value)):
        raise BadInput(
            f"{key} takes {_type_name(default)}, for example {default!r}; "
            f"got {value!r} ({_type_name(value)}) from {layer}"
        )
    if isinstance(value, list) and default:
        return [_typed(f"each item of {key}", item, default[0], layer) for item in value]
    return value


def _type_name(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a string", list: "a list"}
    return names.get(type(value), type(value).__name__)
