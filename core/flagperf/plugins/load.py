"""Load every installed plugin by itself, and keep the reason of each that cannot be used.

pluggy's own bulk loading and calling stop at the first exception, so both are done one plugin at a time.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable

import msgspec
import pluggy

from flagperf import hookspecs
from flagperf.errors import PluginRefused

GROUP = "flagperf"
OWN_DISTRIBUTION = "flagperf"


class PluginStatus(msgspec.Struct, frozen=True):
    """One entry point of the group. `problem` says why it, or a part of it, is not used."""

    name: str
    distribution: str
    version: str
    problem: str = ""

    @property
    def key(self) -> str:
        """Unique: two distributions may call their entry points alike."""
        return f"{self.distribution}:{self.name}"


class LoadedPlugins(msgspec.Struct, frozen=True):
    manager: pluggy.PluginManager
    statuses: tuple[PluginStatus, ...]


def load_entry_points(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> LoadedPlugins:
    manager = pluggy.PluginManager("flagperf")
    manager.add_hookspecs(hookspecs)
    found = importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    return LoadedPlugins(manager, tuple(_load(manager, entry_point) for entry_point in sorted(found, key=_order)))


def _order(entry_point: importlib.metadata.EntryPoint) -> tuple[bool, str, str]:
    """Our own first, then by name: the same order on every machine."""
    distribution, _ = _distribution(entry_point)
    return (distribution != OWN_DISTRIBUTION, entry_point.name, distribution)


def _load(manager: pluggy.PluginManager, entry_point: importlib.metadata.EntryPoint) -> PluginStatus:
    distribution, version = _distribution(entry_point)
    status = PluginStatus(entry_point.name, distribution, version)
    try:
        _check_core_range(entry_point)
        module = _import(entry_point)
        _check_hook_api(module, distribution)
        manager.register(module, name=status.key)
        manager.check_pending()
    except PluginRefused as refused:
        return msgspec.structs.replace(status, problem=str(refused))
    except (ValueError, pluggy.PluginValidationError) as error:
        if manager.has_plugin(status.key):
            manager.unregister(name=status.key)
        return msgspec.structs.replace(status, problem=f"does not fit the contract: {error}")
    return status


def _distribution(entry_point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    if entry_point.dist is None:
        return "unknown", ""
    headers = _headers(entry_point.dist)
    return headers["name"][0].lower().replace("_", "-"), headers["version"][0]


@functools.cache
def _headers(distribution: importlib.metadata.Distribution) -> dict[str, list[str]]:
    """The head of a distribution's metadata by lower-case name. importlib.metadata would read the whole file, with the
    README in it, as an e-mail, and again for every question: that took longer than reading all cases."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    headers: dict[str, list[str]] = {"name": [], "version": [], "requires-dist": []}
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    return headers if headers["name"] and headers["version"] else _UNNAMED


_UNNAMED: dict[str, list[str]] = {"name": ["unknown"], "version": [""], "requires-dist": []}


def _import(entry_point: importlib.metadata.EntryPoint) -> object:
    try:
        return entry_point.load()
    except (Exception, SystemExit) as error:  # whatever its import does becomes this plugin's reason
        raise PluginRefused(f"cannot be imported: {type(error).__name__}: {error}") from error


def _check_core_range(entry_point: importlib.metadata.EntryPoint) -> None:
    """The plugin's declared range of flagperf, read from its own metadata so that it holds after --no-deps too."""
    if entry_point.dist is None or _distribution(entry_point)[0] == OWN_DISTRIBUTION:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    for text in _headers(entry_point.dist)["requires-dist"]:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise PluginRefused(f"its metadata has an invalid requirement {text!r}: {error}") from error
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.lower() == OWN_DISTRIBUTION and not requirement.specifier.contains(
            core_version(), prereleases=True
        ):
            raise PluginRefused(f"it needs flagperf{requirement.specifier}, this is {core_version()}")


def _check_hook_api(module: object, distribution: str) -> None:
    declared: object = getattr(module, "FLAGPERF_HOOK_API", None)
    if declared is None:
        raise PluginRefused("it does not say FLAGPERF_HOOK_API, the version of the contract it was written for")
    if type(declared) is not int:
        raise PluginRefused(f"its FLAGPERF_HOOK_API has to be an int such as {hookspecs.HOOK_API}; got {declared!r}")
    if not hookspecs.MIN_HOOK_API <= declared <= hookspecs.HOOK_API:
        outdated = distribution if declared < hookspecs.MIN_HOOK_API else OWN_DISTRIBUTION
        raise PluginRefused(
            f"it was written for HOOK_API {declared}, this flagperf {core_version()} speaks "
            f"{hookspecs.MIN_HOOK_API} to {hookspecs.HOOK_API}: upgrade {outdated}"
        )


@functools.cache
def core_version() -> str:
    return importlib.metadata.version(OWN_DISTRIBUTION)
