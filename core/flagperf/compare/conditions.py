"""The conditions of a side: everything that may explain a difference. What differs between sides is shown first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from flagperf import units
from flagperf.compare.side import Side
from flagperf.spec import NodeFacts, PublishedResult, flatten, page_name
from flagperf.store.run import RecordedRun, Run

Subject = Literal["hardware", "precision", "configuration", "environment", "software"]

HARDWARE_FACTS = ("machine", "cpu", "network")
SOFTWARE_FACTS = ("framework", "python", "commit")
"""All other facts of a node are its environment."""

HOW_NOT_WHAT = ("data.num_workers", "model.recompute", "model.save_to")
"""Keys of data and model that change how something is computed, not what."""

Condition = tuple[Subject, str]
"""A subject, and a name in it: a fact, a key of the configuration, a package."""

CHANGES: Condition = ("configuration", "fix_hp")
"""What was changed from the standard configuration, as published pages have it: of a published result, nothing else of
the configuration is known."""
NO_CHANGES = ("", "/", "-", "none", "per-row")


class Difference(msgspec.Struct, frozen=True):
    subject: Subject
    name: str
    values: tuple[str | None, ...]
    """Of each side. None where it is not known; empty where a variable is not set, or a package not installed."""


def differences(sides: Sequence[Side]) -> list[Difference]:
    """In the order of subjects."""
    listed = _listed(sides)
    found = [conditions(side, listed) for side in sides]
    if any(side.reference is not None for side in sides):
        found = [{**each, CHANGES: _changes(side)} for side, each in zip(sides, found, strict=True)]
    names = sorted({name for each in found for name in each}, key=_order)
    rows = [Difference(*name, tuple(each.get(name) for each in found)) for name in names]
    return [row for row in rows if len({value for value in row.values if value is not None}) > 1]


def _listed(sides: Sequence[Side]) -> dict[Condition, str]:
    """Variables and packages, each with the word for one that a run does not have. Runs of one version of flagperf have
    looked for the same ones; of what another version looked for, nothing is known."""
    runs = [recorded for side in sides for recorded in side.runs]
    if len({recorded.run.flagperf_version for recorded in runs}) > 1:
        return {}
    return {name: "" for recorded in runs for node in recorded.nodes[:1] for name, _ in _lists(node)}


def conditions(side: Side, listed: Mapping[Condition, str] | None = None) -> dict[Condition, str]:
    """Of several runs, their different values. `listed`: what is known of a run that has no value there."""
    if side.reference is not None:
        return dict(_of_reference(side.reference))
    found: dict[Condition, dict[str, None]] = {}
    for recorded in side.runs:
        absent = listed if listed and recorded.nodes else {}
        for name, text in {**absent, **dict(_of_run(recorded))}.items():
            found.setdefault(name, {})[text] = None
    return {name: _joined(list(texts)) for name, texts in found.items()}


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(text or "-" for text in texts)


def is_identity(key: str) -> bool:
    """Whether a key of the configuration says which model or data it is. `obstacles` compares those."""
    return key.startswith(("model.", "data.")) and key not in HOW_NOT_WHAT


def _order(name: Condition) -> tuple[int, str]:
    subjects = ("hardware", "precision", "configuration", "environment", "software")
    return subjects.index(name[0]), name[1]


def setup(run: Run) -> Iterator[tuple[Condition, str]]:
    """What repeats have in common."""
    job = run.job
    yield ("hardware", "vendor"), job.vendor
    yield ("hardware", "device"), job.device_model.model
    yield ("hardware", "shape"), job.shape
    yield ("precision", "precision"), job.precision.name
    for key, value in flatten(job.config.values):
        if key != "precision" and not is_identity(key):
            yield ("configuration", key), units.setting(value)


def _of_run(recorded: RecordedRun) -> Iterator[tuple[Condition, str]]:
    run, job = recorded.run, recorded.run.job
    yield from setup(run)
    yield ("hardware", "host"), ", ".join(dict.fromkeys(node.host for node in job.nodes))
    yield ("software", "flagperf"), run.flagperf_version
    yield ("software", "adapter"), job.adapter
    if job.case_package:
        yield ("software", "case"), job.case_package
    for library, package in job.operator_libraries.items():
        yield ("software", library), package
    for node in recorded.nodes[:1]:
        yield from _of_node(node, job.vendor)


def _of_node(node: NodeFacts, vendor: str) -> Iterator[tuple[Condition, str]]:
    """Those of the first node stand for all: a run on nodes that differ says so on its page."""
    for name, fact in node.environment.facts.items():
        subject: Subject = "hardware" if name in HARDWARE_FACTS else "environment"
        yield ("software" if name in SOFTWARE_FACTS else subject, name), fact.value or "/"
    yield from _lists(node)
    versions = next((facts.versions for facts in node.vendors if facts.vendor == vendor), {})
    yield from ((("software", name), version) for name, version in versions.items())


def _lists(node: NodeFacts) -> Iterator[tuple[Condition, str]]:
    yield from ((("environment", name), value) for name, value in node.environment.variables.items())
    yield from ((("software", name), version) for name, version in node.environment.packages.items())


def _changes(side: Side) -> str:
    if side.reference is not None:
        return "" if side.reference.overrides in NO_CHANGES else side.reference.overrides
    job, manifest = side.runs[-1].run.job, side.case
    values = dict(flatten(job.config.values))
    changed = [key for key in job.config.deviations if key != "precision"]
    return ", ".join(f"{page_name(manifest, key)}={units.setting(values[key])}" for key in changed)


def _of_reference(reference: PublishedResult) -> Iterator[tuple[Condition, str]]:
    yield ("hardware", "vendor"), reference.vendor
    yield ("hardware", "device"), reference.device
    yield ("hardware", "shape"), f"{reference.nodes}x{reference.devices_per_node}"
    yield ("precision", "precision"), reference.precision
