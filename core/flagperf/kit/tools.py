"""A vendor's command-line tool, and the memory probe that reads cards through one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from flagperf.api.device import Device
from flagperf.api.machine import CommandOutput, Machine
from flagperf.api.memory_probe import FIGURES, Availability, MemoryProbe, Reading
from flagperf.errors import ToolFailed, ToolSilent, UnknownLayout
from flagperf.kit.presence import pci_address

_SHOWN_KEYS = 4
NOT_LISTED = "the tool did not list this card"
"""Beginning of the reason for a figure if its card is not in an answer."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Some tools colour what they print into a pipe, too."""


class Tool(msgspec.Struct, frozen=True):
    """`folders` are searched after PATH: containers often mount the tool without naming its folder there."""

    names: tuple[str, ...]
    """File names, the first one that exists counts."""
    folders: tuple[str, ...] = ()
    """Absolute paths below the machine's root."""
    timeout_seconds: float = 10.0
    """When it is killed, with its children."""

    def find(self, machine: Machine) -> str | None:
        """Return the absolute path of the first one that exists. An empty entry of PATH, which a shell takes for the
        current folder, is ignored."""
        inside = [str(machine.root / folder.lstrip("/")) for folder in self.folders]
        path = os.pathsep.join([*filter(None, machine.environ.get("PATH", "").split(os.pathsep)), *inside])
        found = filter(None, (shutil.which(name, path=path) for name in self.names))
        return next((str(Path(each).absolute()) for each in found), None)

    def run(self, machine: Machine, arguments: Sequence[str]) -> str:
        """Return what it prints on stdout. Exit codes of such tools are not promised, but one that is not 0 is a
        failure."""
        output = self.call(machine, arguments)
        if output.returncode != 0:
            raise self.failure(arguments, output)
        return output.stdout

    def call(self, machine: Machine, arguments: Sequence[str]) -> CommandOutput:
        """Return its output, whatever its exit code. Raises ToolSilent if it could not be started or did not end in
        time."""
        path = self.find(machine)
        if path is None:
            raise ToolFailed(f"{self.names[0]} is neither on PATH nor in {', '.join(self.folders) or 'a known folder'}")
        output = machine.run_tool([path, *arguments], timeout_seconds=self.timeout_seconds)
        if output.problem:
            raise ToolSilent(output.problem)
        plain = {name: _COLOUR.sub("", getattr(output, name)) for name in ("stdout", "stderr")}
        return msgspec.structs.replace(output, **plain)

    def failure(self, arguments: Sequence[str], output: CommandOutput) -> ToolFailed:
        words = " ".join(f"{output.stderr} {output.stdout}".split())[:300] or "it printed nothing"
        command = " ".join([self.names[0], *arguments])
        return ToolFailed(f"{command} ended with {output.returncode}: {words}")


def _no_cards(_stderr: str) -> list[Reading]:
    return []


class Query(msgspec.Struct, frozen=True):
    """One call of the tool: what to ask, how to read the answer, and which FIGURES it is asked for."""

    arguments: tuple[str, ...]
    """Arguments after the tool's name."""
    parse: Callable[[str], list[Reading]]
    """Turns what it printed into readings under the tool's own keys."""
    figures: tuple[str, ...]
    """Names in FIGURES. A later query is left out of a sample when all of these are known."""
    parse_stderr: Callable[[str], list[Reading]] = _no_cards
    """Needed for a tool that names lost cards there and ends with 0. If it names some and `parse` refuses stdout,
    `parse` gets both texts as one."""

    def ask(self, tool: Tool, machine: Machine) -> list[Reading]:
        """Return all cards. Some of them are not taken for all: an exit code other than 0 is a failure, unless the tool
        says which cards have a problem."""
        output = tool.call(machine, self.arguments)
        cards = self._cards(tool, output)
        if output.returncode != 0 and not any("problem" in card.properties for card in cards):
            raise tool.failure(self.arguments, output)
        return cards

    def sample(self, tool: Tool, machine: Machine) -> list[Reading]:
        """Return the cards that it lists. An answer that can be parsed counts even if the tool exits with an error, as
        it does when one card is lost: the others are still there."""
        return self._cards(tool, tool.call(machine, self.arguments))

    def _cards(self, tool: Tool, output: CommandOutput) -> list[Reading]:
        named = self.parse_stderr(output.stderr)
        cards: list[Reading] | None = None
        try:
            cards = self.parse(output.stdout)
        except UnknownLayout as error:
            if named:  # if the lost card is the only one, stdout just says that there is none
                with contextlib.suppress(UnknownLayout):
                    cards = self.parse(f"{output.stderr.rstrip()}\n{output.stdout}")
            if cards is None:
                if output.returncode != 0:
                    raise tool.failure(self.arguments, output) from None
                said = " ".join(output.stderr.split())[:300]
                if said:
                    error.args = (f"{error}; on stderr: {said!r}",)
                raise
        listed = {card.device_id for card in cards}
        answer = [*(card for card in named if card.device_id not in listed), *cards]
        why = f"{' '.join((tool.names[0], *self.arguments))} did not give it"
        for place, card in enumerate(answer):  # a figure that the answer leaves out has a reason, too
            absent = [figure for figure in self.figures if getattr(card, figure) is None and figure not in card.missing]
            answer[place] = msgspec.structs.replace(card, missing={**card.missing, **dict.fromkeys(absent, why)})
        return answer


def ask_all(tool: Tool, machine: Machine, queries: Sequence[Query]) -> list[Reading]:
    """Return the cards that the first query lists, by the tool's own keys, with what the others add: for discovery. The
    first one must answer; a later one that fails leaves its figures out, each with the reason."""
    first, *others = queries
    answers = [_by_key(first.ask(tool, machine))]
    missing: dict[str, str] = {}
    for query in others:
        try:
            answers.append(_by_key(query.ask(tool, machine)))
        except ToolFailed as error:
            missing = {**_reasons(query, error), **missing}
            if isinstance(error, ToolSilent):
                break
    return [merge(key, [answer.get(key) for answer in answers], missing) for key in answers[0]]


def ask_any(tool: Tool, machine: Machine, *ways: Sequence[Query]) -> list[Reading]:
    """Return `ask_all` of the first way whose first query answers: for a tool of which a release may print the best
    form in an unknown way and an older one in a known way. If none answers, the failure is the first one's."""
    failures: list[ToolFailed] = []
    for queries in ways:
        try:
            return ask_all(tool, machine, queries)
        except ToolFailed as error:
            failures.append(error)
            if isinstance(error, ToolSilent):
                break
    raise failures[0]


def ask_first(tool: Tool, machine: Machine, queries: Sequence[Query]) -> list[Reading]:
    """Return the answer of the first query that succeeds, or an empty list: for what the caller can do without."""
    for query in queries:
        try:
            return query.ask(tool, machine)
        except ToolSilent:
            break
        except ToolFailed:
            continue
    return []


def _reasons(query: Query, error: ToolFailed) -> dict[str, str]:
    """Return the reason for each figure of the query; for a tool that is not retried, of all that are not known yet."""
    return dict.fromkeys(FIGURES if isinstance(error, ToolSilent) else query.figures, str(error))


def _by_key(readings: Sequence[Reading]) -> dict[str, Reading]:
    return {reading.device_id: reading for reading in readings}


class ToolProbe(MemoryProbe):
    """Reads cards through one or more queries. The first one must answer, or the sample is a gap. A later one is asked
    only while one of its figures is still missing; one that fails leaves its figures out, each with the reason.
    A tool that hangs is not retried within the sample."""

    tool: ClassVar[Tool]
    """The tool that is called."""
    queries: ClassVar[tuple[Query, ...]]
    """The first one must list every card; later ones add figures."""
    minimum_interval_seconds = 1.0

    def __init__(self) -> None:
        self._machine = Machine()

    def available(self, machine: Machine) -> Availability:
        self._machine = machine
        path = self.tool.find(machine)
        where = f"PATH or {', '.join(self.tool.folders)}" if self.tool.folders else "PATH"
        return Availability(True) if path else Availability(False, f"no {self.tool.names[0]} in {where}")

    def tried(self, machine: Machine) -> Availability:
        """Return `available` for a probe that others follow, by asking: releases differ in what they print."""
        found = ToolProbe.available(self, machine)
        if not found.available:
            return found
        try:
            self.queries[0].sample(self.tool, machine)
        except ToolFailed as error:
            return Availability(False, str(error))
        return found

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        first, *others = self.queries
        answers = [self._joined(first, devices)]
        missing: dict[str, str] = {}
        for query in others:
            known = (
                any(getattr(answer.get(device.id), figure, None) is not None for answer in answers)
                for device in devices
                for figure in query.figures
            )
            if all(known):
                continue
            try:
                answers.append(self._joined(query, devices))
            except ToolFailed as error:
                missing = {**_reasons(query, error), **missing}
                if isinstance(error, ToolSilent):
                    break
        return [merge(device.id, [answer.get(device.id) for answer in answers], missing) for device in devices]

    def _joined(self, query: Query, devices: Sequence[Device]) -> dict[str, Reading]:
        """Return readings by device id. A card that the answer does not list has that as the reason for each figure."""
        readings = query.sample(self.tool, self._machine)
        joined = join(readings, devices)
        keys = ", ".join(reading.device_id for reading in readings[:_SHOWN_KEYS])
        why = NOT_LISTED if joined or not readings else f"{NOT_LISTED}: what it lists is called {keys}"
        missing = dict.fromkeys(query.figures or FIGURES, why)
        return {device.id: joined.get(device.id) or Reading(device.id, missing=missing) for device in devices}


def join(readings: Sequence[Reading], devices: Sequence[Device]) -> dict[str, Reading]:
    """Return readings by device id. A tool's readings carry its own key: a UUID, a PCI address or its index; never
    their position. Slices share the address and the index of their card, which then name none of them."""
    joined: dict[str, Reading] = {}
    for reading in readings:
        key = reading.device_id
        by_id = [device for device in devices if key in (device.id, device.uuid)]
        by_place = [device for device in devices if key in (device.pci_address, str(device.physical_index))]
        by_address = [device for device in devices if device.pci_address and device.pci_address == pci_address(key)]
        named = next((found for found in (by_id, by_place, by_address) if len(found) == 1), [])
        for device in named:
            if device.id in joined:
                raise UnknownLayout(f"two readings of the card {device.id}", key, key)
            joined[device.id] = reading
    return joined


def merge(device_id: str, readings: Sequence[Reading | None], missing: dict[str, str]) -> Reading:
    """Merge what several queries said of a card into one reading. A figure that none gave keeps the first reason for
    it."""
    answered = [reading for reading in readings if reading is not None]
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for figure in FIGURES:
        given = [value for reading in answered if (value := getattr(reading, figure)) is not None]
        said = [reading.missing[figure] for reading in answered if figure in reading.missing]
        if given:
            values[figure] = given[0]
        elif said or figure in missing:
            reasons[figure] = [*said, missing.get(figure, "")][0]
        elif not answered:
            reasons[figure] = NOT_LISTED
    properties = {name: value for reading in reversed(answered) for name, value in reading.properties.items()}
    return Reading(device_id, **values, missing=reasons, properties=properties)
