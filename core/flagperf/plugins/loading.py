"""Load every installed plugin by itself, keep the reason of each that cannot be used, and check what methods give.

pluggy's own bulk loading and calling stop at the first exception, so both are done one plugin at a time. Whatever a
plugin raises is caught and told with its name. A plugin that loops or ends the process takes the command with it:
`vendors list` finds it by trying each plugin in a process of its own (see trial.py), and FLAGPERF_WITHOUT starts
without it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import traceback
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import Any

import msgspec
import pluggy

from flagperf import hookspecs, version
from flagperf.api import Allocation
from flagperf.errors import FlagPerfError, PluginFailed

GROUP = "flagperf"
OWN_DISTRIBUTION = "flagperf"
ADAPTER_PREFIX = "flagperf-"
"""What the name of an adapter's distribution begins with; its vendor word follows."""

WITHOUT = "FLAGPERF_WITHOUT"
"""Plugins to start without, separated by commas: entry points, distributions, or vendor words."""

NOTE_SECONDS = 10.0
"""After this time without an answer of a plugin, the command says what it waits for. Longer than honest imports take,
also from a slow network drive."""

STUCK_SECONDS = 5.0
"""If Python could not say so for so much longer, a library holds its lock."""


class PluginStatus(msgspec.Struct, frozen=True):
    """One entry point of a plugin, or a distribution that should have one. `problem` says why it, or a part of it, is
    not used."""

    name: str
    distribution: str
    version: str
    problem: str = ""
    is_refused: bool = False
    """It is left out, or was written for another contract: none of its hooks was called."""

    @property
    def adapter(self) -> str:
        """Return the name that messages use."""
        return f"{self.distribution} {self.version}"

    @property
    def key(self) -> str:
        """Return a unique name: two distributions may call their entry points alike."""
        return f"{self.distribution}:{self.name}"


class LoadedPlugins(msgspec.Struct, frozen=True):
    manager: pluggy.PluginManager
    statuses: tuple[PluginStatus, ...]
    left_out: tuple[PluginStatus, ...] = ()
    """Plugins named by FLAGPERF_WITHOUT, which count as not installed."""


# --- loading ----------------------------------------------------------------------------------------------------------


def load_entry_points(
    found: Iterable[EntryPoint] | None = None,
    needed: Collection[str] | None = None,
    failed: Mapping[str, str] | None = None,
) -> LoadedPlugins:
    """Load our own plugins first, then the others by name: the same order on every machine. With `needed`
    (distributions as a job names them), load only those and our own. `failed`: keys of plugins that are known not to
    load, each with its problem."""
    manager = pluggy.PluginManager("flagperf")
    manager.add_hookspecs(hookspecs)
    known = {status_of(each): each for each in (installed_entry_points() if found is None else found)}
    ordered = sorted(known, key=lambda each: (each.distribution != OWN_DISTRIBUTION, each.name, each.key))
    if needed is not None:
        names = {OWN_DISTRIBUTION, *(adapter.partition(" ")[0] for adapter in needed)}
        ordered = [status for status in ordered if status.distribution in names]
    statuses, left_out = [], []
    for status in ordered:
        if is_left_out(status):
            why = f"it is left out by {WITHOUT}={os.environ[WITHOUT]}"
            left_out.append(msgspec.structs.replace(status, problem=why, is_refused=True))
        elif failed and status.key in failed:
            statuses.append(msgspec.structs.replace(status, problem=failed[status.key]))
        else:
            statuses.append(_load(manager, known[status], status))
    return LoadedPlugins(manager, tuple(statuses), tuple(left_out))


def installed_entry_points() -> Iterable[EntryPoint]:
    """Return the entry points of all plugins. Of two distributions of one name, the first on sys.path counts, as for
    imports."""
    return entry_points(group=GROUP)


def status_of(entry_point: EntryPoint) -> PluginStatus:
    assert entry_point.dist is not None
    return PluginStatus(entry_point.name, *_name_and_version(entry_point.dist))


def is_left_out(status: PluginStatus) -> bool:
    """Return whether FLAGPERF_WITHOUT names this plugin. Our own plugins cannot be left out."""
    asked = {word.strip().lower().replace("_", "-") for word in os.environ.get(WITHOUT, "").split(",")}
    words = (status.name, status.distribution, status.distribution.removeprefix(ADAPTER_PREFIX), status.key)
    return status.distribution != OWN_DISTRIBUTION and not asked.isdisjoint(
        word.lower().replace("_", "-") for word in words
    )


def plugins_without_entry_point() -> list[PluginStatus]:
    """Return installed distributions that are named like an adapter and have no entry point."""
    problem = f"it has no entry point of the group `{GROUP}`: add [project.entry-points.{GROUP}] to its pyproject.toml"
    known = {status_of(each).distribution for each in installed_entry_points()}
    found = dict(map(_name_and_version, reversed(list(distributions()))))  # the first of a name counts
    return [
        PluginStatus(name.removeprefix(ADAPTER_PREFIX), name, number, problem)
        for name, number in sorted(found.items())
        if name.startswith(ADAPTER_PREFIX) and name not in known
    ]


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return `unknown` for what its metadata lack, as after an uninstallation that was cut off."""
    said = distribution.metadata  # that of Python 3.10 has no `get`
    name, number = (said[header] if header in said else "unknown" for header in ("Name", "Version"))  # noqa: SIM401
    return name.lower().replace("_", "-").replace(".", "-"), number


def _load(manager: pluggy.PluginManager, entry_point: EntryPoint, status: PluginStatus) -> PluginStatus:
    """Import a plugin and register its hooks. Return its status, with what went wrong as the problem."""
    slow = f"still importing {status.adapter}; {WITHOUT}={status.name} starts without it"
    is_own = status.distribution == OWN_DISTRIBUTION
    try:
        with contextlib.nullcontext() if is_own else told_when_slow(slow, shows_line=True):
            module = entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        return msgspec.structs.replace(status, problem=f"cannot be imported: {type(error).__name__}: {error}")
    declared = getattr(module, "FLAGPERF_HOOK_API", None)
    if declared is None:
        refusal = "it does not say FLAGPERF_HOOK_API, the version of the contract it was written for"
    elif type(declared) is not int:
        what = f"the {type(declared).__name__} {declared!r}"
        refusal = f"its FLAGPERF_HOOK_API has to be an int such as {hookspecs.HOOK_API}; got {what}"
    elif not 1 <= declared <= hookspecs.HOOK_API:
        refusal = (
            f"it was written for HOOK_API {declared}, this flagperf {version()} speaks {hookspecs.HOOK_API}: upgrade "
            f"{OWN_DISTRIBUTION}, or, if it was written before the first release, set FLAGPERF_HOOK_API = 1"
        )
    else:
        refusal = ""
    if refusal:
        return msgspec.structs.replace(status, problem=refusal, is_refused=True)
    try:
        manager.register(module, name=status.key)
        manager.check_pending()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a plugin boundary: pluggy looks at everything in a module
        if manager.has_plugin(status.key):
            manager.unregister(name=status.key)
        return msgspec.structs.replace(status, problem=f"does not fit the contract: {error}")
    return status


@contextlib.contextmanager
def told_when_slow(words: str, *, shows_line: bool = False) -> Iterator[None]:
    """Print what is waited for where that takes long; with `shows_line`, also where this thread is. Where a library
    keeps Python from printing, or crashes, faulthandler shows it. It must not look while Python code runs: it takes no
    lock, and that can crash the process."""
    waiting = threading.get_ident()

    def tell() -> None:
        print(f"flagperf: {words}", file=sys.stderr, flush=True)
        if shows_line:
            faulthandler.cancel_dump_traceback_later()
            traceback.print_stack(sys._current_frames()[waiting], file=sys.stderr)

    if shows_line:
        if not faulthandler.is_enabled():
            faulthandler.enable(2)
        faulthandler.dump_traceback_later(NOTE_SECONDS + STUCK_SECONDS, file=2)
    note = threading.Timer(NOTE_SECONDS, tell)
    note.daemon = True
    note.start()
    try:
        yield
    finally:
        note.cancel()
        note.join()  # an agent forks later, without threads
        if shows_line:
            faulthandler.cancel_dump_traceback_later()


# --- what methods give ------------------------------------------------------------------------------------------------

_NO_TEXT = (bytes, bytearray)
"""msgspec would write these as text, and take them for it."""


class Checked:
    """An object of a plugin, as the command's own process uses it. Attributes are the object's own; methods are called
    with `ask`, and have to give what the contract says."""

    def __init__(self, value: Any, plugin: PluginStatus, contract: type) -> None:
        self._value, self._plugin, self._contract = value, plugin, contract

    def __getattr__(self, name: str) -> Any:
        promised = getattr(self._contract, name, None)
        if not isinstance(promised, types.FunctionType):
            return getattr(self._value, name)

        def call(*arguments: Any, **named: Any) -> Any:
            answer = typing.get_type_hints(promised)["return"]
            given = ask(self._plugin, name, lambda: getattr(self._value, name)(*arguments, **named), answer)
            return Checked(given, self._plugin, Allocation) if isinstance(given, Allocation) else given

        return call


def ask(plugin: PluginStatus, what: str, call: Callable[[], Any], answer: Any) -> Any:
    """Return what `call`, code of this plugin, gives. Raise PluginFailed where it raises or gives another type than
    `answer`. Errors that the plugin raises for the user (FlagPerfError) stay as they are."""
    try:
        with told_when_slow(f"waiting for {plugin.adapter}: {what}"):
            value = call()
        if answer is type(None):
            return None
        parts = typing.get_args(answer) or (answer,)
        is_collection = typing.get_origin(answer) in (list, dict, tuple)
        try:
            if is_collection or any(issubclass(part, msgspec.Struct) for part in parts):
                return typed(value, answer)
        except (msgspec.ValidationError, TypeError) as error:
            raise TypeError(f"it gave {type(value).__name__}, not {_name(answer)} ({error})") from None
        if not isinstance(value, answer):
            raise TypeError(f"it gave {type(value).__name__}, not {_name(answer)}")
        return value
    except (FlagPerfError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginFailed(f"adapter {plugin.adapter} failed: {what}: {type(error).__name__}: {error}") from error


def wrong_attributes(value: object, contract: type) -> list[str]:
    """Return one text for each class attribute of the contract that a value lacks or has of another type."""
    problems = []
    for name, hint in typing.get_type_hints(contract).items():
        if typing.get_origin(hint) is not typing.ClassVar:
            continue
        try:
            typed(getattr(value, name), typing.get_args(hint)[0])
        except AttributeError:
            problems.append(f"{type(value).__name__} has no {name!r}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a plugin boundary
            problems.append(f"{type(value).__name__}.{name} is not what the contract says: {error}")
    return problems


def typed(value: Any, kind: Any) -> Any:
    """Return a plugin's value as this type, all the way down. Raise msgspec.ValidationError or TypeError."""
    if typing.get_origin(kind) is type:
        if not isinstance(value, type) or not issubclass(value, typing.get_args(kind)):
            raise TypeError(f"{value!r} is not a {_name(typing.get_args(kind)[0])} class")
        return value
    return msgspec.convert(msgspec.to_builtins(value, builtin_types=_NO_TEXT), kind)


def _name(answer: Any) -> str:
    return answer.__name__ if isinstance(answer, type) and not typing.get_args(answer) else str(answer)
