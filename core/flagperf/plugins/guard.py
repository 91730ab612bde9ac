"""Every call into a plugin's code outside its own process goes through `ask`.

What it raises (sys.exit too), an answer of another type than the contract says, a call that never returns and one that
takes the process with it become PluginFailed, with the plugin's name and what was called. KeyboardInterrupt alone
passes, because it is Ctrl-C; one that a plugin raises by itself is found where the call is tried (`trial`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import msgspec

from flagperf.api import Allocation, Cluster
from flagperf.errors import FlagPerfError, PluginFailed
from flagperf.plugins.load import OWN_DISTRIBUTION, PluginStatus
from flagperf.plugins.trial import try_out

WAIT_NOTE_SECONDS = 30.0
"""After this time without an answer of a cluster, the command says what it waits for."""

_ACTING = (Cluster, Allocation)
"""Their methods act (ask for nodes, wait in a queue, give them back): they are called once, and may take long."""


_NO_TEXT = (bytes, bytearray)
"""msgspec would write these as text, and take them for it."""


class Guarded:
    """Stands for an object of a plugin. Its attributes are the object's own; its methods are asked with `ask`, and have
    to give what the contract says."""

    def __init__(self, value: Any, plugin: PluginStatus, contract: type) -> None:
        self._value, self._plugin, self._contract = value, plugin, contract

    def __getattr__(self, name: str) -> Any:
        if not isinstance(getattr(self._contract, name, None), types.FunctionType):
            return getattr(self._value, name)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._ask(name, lambda: getattr(self._value, name)(*arguments, **named))

        return call

    def _ask(self, name: str, call: Callable[[], Any]) -> Any:
        answer = ask(
            self._plugin,
            name,
            call,
            typing.get_type_hints(getattr(self._contract, name))["return"],
            acts=issubclass(self._contract, _ACTING),
        )
        return Guarded(answer, self._plugin, Allocation) if isinstance(answer, Allocation) else answer


def ask(plugin: PluginStatus, what: str, call: Callable[[], Any], answer: Any, *, acts: bool = False) -> Any:
    """What `call`, code of this plugin, gives, as `answer` (a type). Errors that the plugin raises for the user
    (FlagPerfError) stay as they are. `acts`: it must not be called twice, and has no time limit."""
    if plugin.distribution != OWN_DISTRIBUTION and not acts:
        problem = try_out([call])[0]
        if problem:
            raise PluginFailed(f"adapter {plugin.adapter} failed: {what} {problem}")
    try:
        with _acting(plugin, what) if acts else contextlib.nullcontext():
            return _conforming(call(), answer)
    except (FlagPerfError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginFailed(f"adapter {plugin.adapter} failed: {what}: {type(error).__name__}: {error}") from error


def wrong_attributes(value: object, contract: type) -> list[str]:
    """What is wrong with the class attributes that the contract asks for, one text each."""
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
    """A plugin's value as this type, all the way down. Raises msgspec.ValidationError or TypeError."""
    if typing.get_origin(kind) is type:
        if not isinstance(value, type) or not issubclass(value, typing.get_args(kind)):
            raise TypeError(f"{value!r} is no {_name(typing.get_args(kind)[0])}")
        return value
    return msgspec.convert(msgspec.to_builtins(value, builtin_types=_NO_TEXT), kind)


def _conforming(value: Any, answer: Any) -> Any:
    """The value, where it is of this type."""
    if answer is type(None):
        return None
    if _is_plain(answer):
        if not isinstance(value, answer):
            raise TypeError(f"it gave {type(value).__name__}, not {_name(answer)}")
        return value
    try:
        return typed(value, answer)
    except (msgspec.ValidationError, TypeError) as error:
        raise TypeError(f"it gave {type(value).__name__}, not {_name(answer)} ({error})") from None


def _is_plain(answer: Any) -> bool:
    """A class, or several (`Path | None`), that isinstance checks completely: no list of something, no struct."""
    parts = typing.get_args(answer) or (answer,)
    return typing.get_origin(answer) not in (list, dict, tuple) and not any(
        issubclass(part, msgspec.Struct) for part in parts
    )


def _name(answer: Any) -> str:
    return answer.__name__ if isinstance(answer, type) and not typing.get_args(answer) else str(answer)


@contextlib.contextmanager
def _acting(plugin: PluginStatus, what: str) -> Iterator[None]:
    """os._exit raises, so that it does not end the command without a word; and a long wait is explained."""

    def explain() -> None:
        print(f"flagperf: waiting for {plugin.adapter}: {what}", file=sys.stderr)

    note = threading.Timer(WAIT_NOTE_SECONDS, explain)
    note.daemon = True
    note.start()
    _replace_exit(1)
    try:
        yield
    finally:
        _replace_exit(-1)
        note.cancel()
        note.join()  # while there is a second thread, nothing is tried in a fork


_leave = os._exit
_exit_lock = threading.Lock()
_num_acting = 0


def _replace_exit(change: int) -> None:
    """os._exit is the process's: it is replaced while any thread is in a call that acts."""
    global _num_acting  # a fact about the process
    with _exit_lock:
        _num_acting += change
        os._exit = _refusal(os.getpid()) if _num_acting else _leave  # type: ignore[assignment]


def _refusal(own_pid: int) -> Callable[[int], NoReturn]:
    def refuse(status: int) -> NoReturn:
        if os.getpid() != own_pid:  # a fork of the plugin's own
            _leave(status)
        raise SystemExit(f"os._exit({status})")

    return refuse
