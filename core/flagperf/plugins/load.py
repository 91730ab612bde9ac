"""Load every installed plugin by itself, and keep the reason of each that cannot be used.

pluggy's own bulk loading and calling stop at the first exception, so both are done one plugin at a time. Plugins of
other distributions are first tried in a fork: one whose import loops or ends the process is refused like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence

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
    def adapter(self) -> str:
        """As messages name it."""
        return f"{self.distribution} {self.version}"

    @property
    def key(self) -> str:
        """Unique: two distributions may call their entry points alike."""
        return f"{self.distribution}:{self.name}"


class LoadedPlugins(msgspec.Struct, frozen=True):
    manager: pluggy.PluginManager
    statuses: tuple[PluginStatus, ...]
    trial: bool = True
    """Whether hooks are to be tried in a fork before they are called."""


def load_entry_points(
    found: Iterable[EntryPoint] | None = None, needed: Collection[str] | None = None, trial: bool = False
) -> LoadedPlugins:
    """With `needed` (distributions as a job names them), only those and our own, for the processes of a run: the
    command and `describe` have tried them by then, but for the hooks that they do not call (`trial`)."""
    manager = pluggy.PluginManager("flagperf")
    manager.add_hookspecs(hookspecs)
    ordered = sorted(entry_points(GROUP) if found is None else found, key=_order)
    if needed is not None:
        names = {adapter.partition(" ")[0] for adapter in needed}
        ordered = [each for each in ordered if is_own(each) or each.distribution.name in names]
    refused = {} if needed is not None else _refused([each for each in ordered if not is_own(each)], manager)
    statuses = (refused.get(_status(each).key) or _load(manager, each) for each in ordered)
    return LoadedPlugins(manager, tuple(statuses), trial=trial or needed is None)


def is_own(entry_point: EntryPoint) -> bool:
    return entry_point.distribution.name == OWN_DISTRIBUTION


def _refused(foreign: Sequence[EntryPoint], manager: pluggy.PluginManager) -> dict[str, PluginStatus]:
    """Those whose import did not come back, each with its problem."""
    if not foreign:
        return {}
    from flagperf.plugins.trial import try_out  # lazy: many installations have no other plugin

    problems = try_out([functools.partial(_load, manager, each) for each in foreign])
    tried = zip(map(_status, foreign), problems, strict=True)
    return {
        status.key: msgspec.structs.replace(status, problem=f"cannot be imported: it {problem}")
        for status, problem in tried
        if problem
    }


def trial_seconds() -> float:
    """What the plugins of other distributions take at most where all of them hang: none is asked again after that."""
    num_foreign = sum(not is_own(each) for each in entry_points(GROUP))
    if not num_foreign:
        return 0.0
    from flagperf.plugins.trial import limit_seconds  # lazy: many installations have no other plugin

    return num_foreign * limit_seconds()


def _status(entry_point: EntryPoint) -> PluginStatus:
    return PluginStatus(entry_point.name, entry_point.distribution.name, entry_point.distribution.version)


def plugins_without_entry_point() -> list[PluginStatus]:
    """Installed distributions that are named like an adapter, and that nothing can find."""
    empty = f"it has neither METADATA nor an entry point of the group `{GROUP}`: install it again"
    problem = f"it has no entry point of the group `{GROUP}`: add [project.entry-points.{GROUP}] to its pyproject.toml"
    return [
        PluginStatus(
            each.name.removeprefix(ADAPTER_PREFIX), each.name, each.version, problem if each.has_metadata else empty
        )
        for each in without_entry_point(GROUP, ADAPTER_PREFIX)
    ]


def _order(entry_point: EntryPoint) -> tuple[bool, str, str]:
    """Our own first, then by name: the same order on every machine."""
    distribution = entry_point.distribution.name
    return (distribution != OWN_DISTRIBUTION, entry_point.name, distribution)


def _load(manager: pluggy.PluginManager, entry_point: EntryPoint) -> PluginStatus:
    distribution, status = entry_point.distribution, _status(entry_point)
    try:
        if not is_own(entry_point):
            from flagperf.plugins.core_range import check_core_range  # lazy: many installations have no other plugin

            check_core_range(distribution.requirements, core_version())
        module = _import(entry_point)
        _check_hook_api(module)
        manager.register(module, name=status.key)
        manager.check_pending()
    except PluginRefused as refused:
        return msgspec.structs.replace(status, problem=str(refused))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a plugin boundary: pluggy looks at everything in a module
        if manager.has_plugin(status.key):
            manager.unregister(name=status.key)
        return msgspec.structs.replace(status, problem=f"does not fit the contract: {error}")
    return status


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever its import does becomes this plugin's reason
        raise PluginRefused(f"cannot be imported: {type(error).__name__}: {error}") from error


def _check_hook_api(module: object) -> None:
    declared: object = getattr(module, "FLAGPERF_HOOK_API", None)
    if declared is None:
        raise PluginRefused("it does not say FLAGPERF_HOOK_API, the version of the contract it was written for")
    if type(declared) is not int:
        raise PluginRefused(
            f"its FLAGPERF_HOOK_API has to be an int such as {hookspecs.HOOK_API}; "
            f"got the {type(declared).__name__} {declared!r}"
        )
    if not 1 <= declared <= hookspecs.HOOK_API:
        raise PluginRefused(
            f"it was written for HOOK_API {declared}, this flagperf {core_version()} speaks {hookspecs.HOOK_API}: "
            f"upgrade {OWN_DISTRIBUTION}, or, if it was written before the first release, set FLAGPERF_HOOK_API = 1"
        )


@functools.cache
def core_version() -> str:
    return installed_version(OWN_DISTRIBUTION)
