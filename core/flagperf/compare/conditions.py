"""The conditions of a side: everything that may explain a difference. What differs between sides is shown first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.compare.sides import SEED, Side
from flagperf.errors import BadInput
from flagperf.messages import Message, message
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.published import PublishedResult
from flagperf.spec.values import flatten, page_name

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


# What makes two sides incomparable. It is said before any number, and there is no verdict then.


NAMED = 3


def refuse_other_cases(sides: Sequence[Side]) -> None:
    """Metrics of two cases may have the same names, and never the same meaning."""
    found = {side.case.name: f"{side.case.name} ({side.word})" for side in sides}
    if len(found) > 1:
        raise BadInput(f"cannot compare runs of different cases: {', '.join(found.values())}; name runs of one case")


def refuse_mixture(side: Side) -> None:
    """Raises BadInput unless the runs of a side are repeats of one another."""
    runs = [recorded.run for recorded in side.runs]
    for other in runs[1:]:
        for name, (ours, theirs) in _changed(runs[0], other).items():
            has_arms = runs[0].group is not None and runs[0].group.arm
            advice = f"name one arm: {runs[0].group.id}/A or /B" if has_arms and runs[0].group else "name fewer runs"
            raise BadInput(
                f"the runs of {side.word} are not repeats of one another: {name} is {ours} in {runs[0].id}, {theirs} "
                f"in {other.id}; {advice}"
            )


def _changed(first: Run, other: Run) -> dict[str, tuple[str, str]]:
    """What repeats have in common, and these two have not."""
    ours, theirs = (_repeated(run) for run in (first, other))
    pairs = {name: (ours.get(name, "/"), theirs.get(name, "/")) for name in {**ours, **theirs}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != SEED}


def _repeated(run: Run) -> dict[str, str]:
    same = {name: text for (_, name), text in setup(run)}
    return {"case": run.manifest.name, "simulated": units.setting(run.simulated), **same, **identity(run)}


def obstacles(baseline: Side, other: Side) -> list[Message]:
    """Of two sides of one case. Empty if they can be compared."""
    found = [message("compare.simulated", side=side.letter) for side in (baseline, other) if side.is_simulated]
    if baseline.reference is not None or other.reference is not None:
        return [*found, *_unpublished(baseline), *_unpublished(other)]
    ours, theirs = (side.runs[0].run for side in (baseline, other))
    return [*found, *_contrasts(ours, theirs, baseline.letter, other.letter)]


def _unpublished(side: Side) -> Iterator[Message]:
    """Published results are of one profile."""
    for recorded in side.runs[:1]:
        profile = recorded.run.manifest.profiles.get(recorded.run.job.profile)
        if profile is None or not profile.published:
            yield message("compare.unpublished", side=side.letter, profile=recorded.run.job.profile)


def _contrasts(ours: Run, theirs: Run, letter: str, other: str) -> Iterator[Message]:
    one, two = identity(ours), identity(theirs)
    for name in {**one, **two}:
        a, b = one.get(name), two.get(name)
        if a != b and a is not None and b is not None:
            yield message("compare.contrast", name=_name(name), a=letter, value=a, b=other, other=b)
    yield from _other_files(ours, theirs, letter, other)


def identity(run: Run) -> dict[str, str]:
    """What decides the work: name -> text."""
    recording = run.job.recording
    values = {key: units.setting(value) for key, value in flatten(run.job.config.values) if is_identity(key)}
    return {
        "case_version": str(run.manifest.version),
        "profile": run.job.profile,
        "model": run.manifest.model,
        "dataset": run.manifest.dataset,
        **values,
        "recording": recording.run_id if recording else "/",
    }


def _other_files(ours: Run, theirs: Run, letter: str, other: str) -> Iterator[Message]:
    """Files of data that both have recorded, and that differ."""
    one, two = ({file.path: file.sha256 for file in run.job.data_files} for run in (ours, theirs))
    different = [path for path in one if two and one[path] != two.get(path)]
    if different:
        more: Any = message("compare.more", count=len(different) - NAMED) if len(different) > NAMED else ""
        yield message("compare.files", a=letter, b=other, files=different[:NAMED], more=more)


def _name(name: str) -> Message | str:
    return name if "." in name else message(f"compare.name_{name}")
