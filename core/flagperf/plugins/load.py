"""Load every installed plugin by itself, and keep the reason of each that cannot be used.

pluggy's own bulk loading and calling stop at the first exception, so both are done one plugin at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec
import pluggy

from flagperf import hookspecs
from flagperf.errors import PluginRefused
from flagperf.plugins.distributions import EntryPoint, entry_points, installed_version, without_entry_point

GROUP = "flagperf"
OWN_DISTRIBUTION = "flagperf"
ADAPTER_PREFIX = "flagperf-"
"""What the name of an adapter's distribution begins with; its vendor word follows."""


class PluginStatus(msgspec.Struct, frozen=True):
    """One entry point of the group, or a distribution that should have one. `problem` says why it, or a part of it, is
    not used."""

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


def load_entry_points(found: Iterable[EntryPoint] | None = None) -> LoadedPlugins:
    manager = pluggy.PluginManager("flagperf")
    manager.add_hookspecs(hookspecs)
    ordered = sorted(entry_points(GROUP) if found is None else found, key=_order)
    return LoadedPlugins(manager, tuple(_load(manager, entry_point) for entry_point in ordered))


def plugins_without_entry_point() -> list[PluginStatus]:
    """Installed distributions that are named like an adapter, and that nothing can find."""
    problem = f"it has no entry point of the group `{GROUP}`: add [project.entry-points.{GROUP}] to its pyproject.toml"
    return [
        PluginStatus(each.name.removeprefix(ADAPTER_PREFIX), each.name, each.version, problem)
        for each in without_entry_point(GROUP, ADAPTER_PREFIX)
    ]


def _order(entry_point: EntryPoint) -> tuple[bool, str, str]:
    """Our own first, then by name: the same order on every machine."""
    distribution = entry_point.distribution.name
    return (distribution != OWN_DISTRIBUTION, entry_point.name, distribution)


def _load(manager: pluggy.PluginManager, entry_point: EntryPoint) -> PluginStatus:
    distribution = entry_point.distribution
    status = PluginStatus(entry_point.name, distribution.name, distribution.version)
    try:
        if distribution.name != OWN_DISTRIBUTION:
            from flagperf.plugins.core_range import check_core_range  # lazy: many installations have no other plugin

            check_core_range(distribution.requirements, core_version())
        module = _import(entry_point)
        _check_hook_api(module, distribution.name)
        manager.register(module, name=status.key)
        manager.check_pending()
    except PluginRefused as refused:
        return msgspec.structs.replace(status, problem=str(refused))
    except (ValueError, pluggy.PluginValidationError) as error:
        if manager.has_plugin(status.key):
            manager.unregister(name=status.key)
        return msgspec.structs.replace(status, problem=f"does not fit the contract: {error}")
    return status


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except (Exception, SystemExit) as error:  # whatever its import does becomes this plugin's reason
        raise PluginRefused(f"cannot be imported: {type(error).__name__}: {error}") from error


def _check_hook_api(module: object, distribution: str) -> None:
    declared: object = getattr(module, "FLAGPERF_HOOK_API", None)
    if declared is None:
        raise PluginRefused("it does not say FLAGPERF_HOOK_API, the version of the contract it was written for")
    if type(declared) is not int:
        raise PluginRefused(
            f"its FLAGPERF_HOOK_API has to be an int such as {hookspecs.HOOK_API}; "
            f"got the {type(declared).__name__} {declared!r}"
        )
    if not hookspecs.MIN_HOOK_API <= declared <= hookspecs.HOOK_API:
        outdated = distribution if declared < hookspecs.MIN_HOOK_API else OWN_DISTRIBUTION
        raise PluginRefused(
            f"it was written for HOOK_API {declared}, this flagperf {core_version()} speaks "
            f"{hookspecs.MIN_HOOK_API} to {hookspecs.HOOK_API}: upgrade {outdated}"
        )


@functools.cache
def core_version() -> str:
    return installed_version(OWN_DISTRIBUTION)
