"""Run: what run.json, environment.json, labels.json and redaction.json of a bundle hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from flagperf.api import LaunchCommand
from flagperf.bundle.liveness import Unfinished
from flagperf.bundle.paths import LABELS_FILE
from flagperf.errors import BadInput, BundleFailed
from flagperf.files import read_regular, write_atomically
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.spec.job import Job, RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.node_facts import NodeFacts
from flagperf.text import is_utf8

# What people say about a run afterwards: tags and a note. They are beside the sealed files; no hash covers them.


MAX_LABELS_BYTES = 1 << 20

MAX_NOTE_CHARACTERS = 10_000

_TAG = re.compile(r"[\w][\w.+-]{0,63}")


class Labels(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(bundle: Path) -> Labels:
    """Return the labels of a run, empty if it has none. Raise BadInput for a file that flagperf did not write."""
    try:
        return msgspec.json.decode(read_regular(bundle / LABELS_FILE, MAX_LABELS_BYTES), type=Labels)
    except FileNotFoundError:
        return Labels()
    except OSError as error:
        raise BadInput(f"cannot read {bundle / LABELS_FILE}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{bundle / LABELS_FILE} has no tags and note of a run: {error}; remove it") from None


def write_labels(bundle: Path, labels: Labels) -> None:
    """Write tags and note, or remove the file if there are none."""
    path = bundle / LABELS_FILE
    try:
        if labels == Labels():
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, msgspec.json.format(msgspec.json.encode(labels), indent=1) + b"\n")
    except OSError as error:
        raise BundleFailed(f"cannot write {path}: {error.strerror}") from None


def checked_tag(tag: str) -> str:
    """Return the tag. Raise BadInput for a word that cannot be one."""
    if not _TAG.fullmatch(tag):
        shape = "a tag has up to 64 letters, digits and the characters . + - _, and begins with a letter or digit"
        raise BadInput(f"{tag[:80]!r} is not a tag; {shape}")
    return tag


def checked_note(text: str) -> str:
    """Return the note without surrounding space. Raise BadInput for a text that cannot be kept."""
    if not is_utf8(text):
        raise BadInput("the note is not UTF-8, so it cannot be kept")
    if len(text) > MAX_NOTE_CHARACTERS:
        raise BadInput(f"the note has {len(text):,} characters, more than {MAX_NOTE_CHARACTERS:,}; shorten it")
    return text.strip()


# Run: the content of run.json. A report needs only this and environment.json.


STORE_SCHEMA = 1
"""Incremented when run.json or environment.json changes in a way that an older reader would misread."""

Status = Literal["succeeded", "failed", "out_of_memory", "timed_out", "unsupported", "target_missed", "interrupted"]

EXIT_CODES: dict[Status, int] = {
    "succeeded": 0,
    "failed": 3,
    "out_of_memory": 4,
    "timed_out": 5,
    "unsupported": 6,
    "target_missed": 7,
    "interrupted": 130,
}

WITH_RESULTS: tuple[Status, ...] = ("succeeded", "target_missed")
"""Endings of a run that has measured everything."""


class Ending(msgspec.Struct, frozen=True):
    status: Status
    reason: str = ""
    """The reason in English."""
    message: Message | None = None
    """The reason as data."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


class RecordedOperators(msgspec.Struct, frozen=True):
    """Counts what --record-operators recorded."""

    steps: int = 0
    """How many were recorded."""
    num_different: int = 0
    """Different calls of the first rank."""
    num_calls: int = 0
    """Calls of the first rank, in all these steps."""
    num_parts: int = 0
    """In how many ways the ranks differ."""
    problem: Message | None = None
    """Why nothing was recorded, or less."""


class RunGroup(msgspec.Struct, frozen=True):
    """The runs of one command: `run --repeat`."""

    id: str
    index: int
    """In the order of running, from 1."""
    of: int
    """How many were asked for."""
    arm: str = ""
    """A or B, if two settings took turns: A B, B A, A B, ..."""

    @property
    def pair(self) -> int:
        """The number of its pair, from 1, if two settings took turns."""
        return (self.index + 1) // 2


class Run(msgspec.Struct, frozen=True):
    schema: int
    id: str
    created: str
    """UTC, ISO 8601."""
    flagperf_version: str
    spec: RunSpec
    job: Job
    manifest: Manifest
    ending: Ending | None = None
    """None while the run is in progress, and after its parent was killed, until somebody ends it (`runs end`)."""
    metric_versions: dict[str, int] = {}
    """Metric -> version of its formula, recorded when the run began."""
    metrics: tuple[Metric, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    """Rows that the case measured besides steps."""
    simulated: bool = False
    commands: tuple[LaunchCommand, ...] = ()
    """One per node: the command that its agent used to start the workers, with its environment variables. Added at the
    end of a run."""
    recorded: RecordedOperators | None = None
    """None without --record-operators. Added at the end of a run."""
    group: RunGroup | None = None
    """None for a run on its own."""
    redacted: bool = False
    """It is a copy that `runs redact` made; redaction.json says what was replaced."""

    @property
    def has_results(self) -> bool:
        """Return True if the run finished and measured everything. A run that missed its target did."""
        return self.ending is not None and self.ending.status in WITH_RESULTS

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


def gated(ending: Ending, run: Run) -> Ending:
    """Return the ending of a finished run. One that missed or did not measure a gating target has not succeeded."""
    target, verdict = run.manifest.target, run.metric("target")
    if ending.status != "succeeded" or target is None or not target.gates or verdict is None or verdict.value == 1:
        return ending
    if verdict.value is None:
        why = verdict.message or verdict.detail
        return ended("target_missed", message("ending.target_not_measured", metric=target.metric, why=why))
    got, wanted = verdict.inputs["got"], verdict.inputs["target"]
    return ended("target_missed", message("ending.target_missed", metric=target.metric, got=got, target=wanted))


def ended(status: Status, why: Message) -> Ending:
    return Ending(status, str(why), why)


class Doubt(msgspec.Struct, frozen=True):
    """A rule of flagperf.plausibility found this in a run. It is never stored."""

    rule: str
    """Its id, which is also the mark on the metrics."""
    message: Message
    """The numbers seen."""
    metrics: tuple[str, ...] = ()
    """Those that are marked."""


class RecordedRun(msgspec.Struct, frozen=True):
    """A run as read from its bundle."""

    run: Run
    nodes: tuple[NodeFacts, ...]
    path: str
    unfinished: Unfinished | None = None
    """What it was when it was read, if it has no ending."""
    host: str = ""
    """Where the command of such a run runs or ran."""
    labels: Labels = Labels()
    doubts: tuple[Doubt, ...] = ()
    """Empty until plausibility.doubts.marked has looked at it."""


# environment.json: the facts of every node. What a node has in common with an earlier one is written once.
#
# A list with an object for each node, in the form of NodeFacts. In place of its `environment`, or of an item of its
# `vendors`, there may be the index of an earlier node that has the same in that place: the nodes of a large run are
# alike but for their names and cards.


def with_references(nodes: Sequence[NodeFacts]) -> list[dict[str, Any]]:
    """Return the content of environment.json."""
    first: dict[tuple[str, int, bytes], int] = {}

    def once(field: str, place: int, value: Any, index: int) -> Any:
        owner = first.setdefault((field, place, msgspec.json.encode(value)), index)
        return value if owner == index else owner

    written: list[dict[str, Any]] = []
    for index, node in enumerate(nodes):
        content = msgspec.to_builtins(node)
        content["environment"] = once("environment", 0, content["environment"], index)
        content["vendors"] = [once("vendors", place, each, index) for place, each in enumerate(content["vendors"])]
        written.append(content)
    return written


def resolved(content: Sequence[dict[str, Any]]) -> tuple[NodeFacts, ...]:
    """Return the nodes, which share what is written once. Raise msgspec.ValidationError, LookupError, TypeError or
    AttributeError if the content is not valid."""
    nodes: list[NodeFacts] = []
    for node in content:
        found = msgspec.convert(node, dict[str, Any])
        if isinstance(found.get("environment"), int):
            found["environment"] = _earlier(nodes, found["environment"]).environment
        found["vendors"] = [
            _earlier(nodes, each).vendors[place] if isinstance(each, int) else each
            for place, each in enumerate(found.get("vendors", ()))
        ]
        nodes.append(msgspec.convert(found, NodeFacts))
    return tuple(nodes)


def _earlier(nodes: Sequence[NodeFacts], index: int) -> NodeFacts:
    if not 0 <= index < len(nodes):
        raise LookupError(f"node {len(nodes)} refers to node {index}, which is not an earlier one")
    return nodes[index]


# redaction.json: what was replaced in a redacted copy of a run.


REDACTION_SCHEMA = 1
"""Incremented when the file changes in a way that an older reader would misread."""


class Redaction(msgspec.Struct, frozen=True):
    schema: int
    flagperf_version: str
    original_run: str
    """The id of the run that this is a copy of."""
    replaced: dict[str, int] = {}
    """Kind of identity -> the number of its pseudonyms in this copy."""
    left_out: tuple[str, ...] = ()
    """Files of the original that are not in this copy."""

    @property
    def summary(self) -> str:
        """Return the counts in words, such as `2 hosts, 8 cards`."""
        names = {"address": "addresses", "pci": "PCI addresses", "uuid": "UUIDs", "mac": "MAC addresses"}
        words = {kind: names.get(kind, f"{kind}s") if count > 1 else kind for kind, count in self.replaced.items()}
        return ", ".join(f"{count} {words[kind]}" for kind, count in self.replaced.items()) or "nothing"
