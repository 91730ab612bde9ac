"""The conditions of a side: everything that may explain a difference. What differs between sides is shown first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.compare.sides import SEED, Side
from flagperf.errors import BadInput
from flagperf.messages import Message, message
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.values import flatten, page_name

Subject = Literal["hardware", "precision", "configuration", "environment", "software"]

HARDWARE_FACTS = ("machine", "cpu", "network")

SOFTWARE_FACTS = ("framework", "python", "commit")
"""All other facts of a node are its environment."""

HOW_NOT_WHAT = ("data.num_workers", "model.recompute", "model.save_to")
"""Keys of data and model that change how something is computed, not what."""

SUBJECTS: tuple[Subject, ...] = ("hardware", "precision", "configuration", "environment", "software")
"""The order in which differences are shown."""

Condition = tuple[Subject, str]
"""A subject, and a name in it: a fact, a key of the configuration, a package."""

CHANGES: Condition = ("configuration", "fix_hp")
"""The changes from the standard configuration, as published pages list them: nothing else is known of the configuration
of a published result."""

NO_CHANGES = ("", "/", "-", "none", "per-row")

NAMED = 3
"""The number of differing files that are named."""


class Difference(msgspec.Struct, frozen=True):
    subject: Subject
    name: str
    values: tuple[str | None, ...]
    """One per side. None where it is not known; empty where a variable is not set, or a package not installed."""


def differences(sides: Sequence[Side]) -> list[Difference]:
    """Return the conditions that differ between sides, in the order of subjects."""
    runs = [recorded for side in sides for recorded in side.runs]
    absent: dict[Condition, str] = {}
    # Runs of one version of flagperf have looked for the same variables and packages, so what one of them lacks is not
    # there. What another version looked for is not known.
    if len({recorded.run.flagperf_version for recorded in runs}) == 1:
        absent = {name: "" for recorded in runs for node in recorded.nodes[:1] for name, _ in _lists(node)}
    found = [conditions(side, absent) for side in sides]
    if any(side.reference is not None for side in sides):
        found = [{**each, CHANGES: _changes(side)} for side, each in zip(sides, found, strict=True)]
    names = sorted({name for each in found for name in each}, key=lambda name: (SUBJECTS.index(name[0]), name[1]))
    rows = [Difference(*name, tuple(each.get(name) for each in found)) for name in names]
    return [row for row in rows if len({value for value in row.values if value is not None}) > 1]


def conditions(side: Side, absent: Mapping[Condition, str] | None = None) -> dict[Condition, str]:
    """Return the conditions of a side. Where its runs differ, their values are listed. `absent` has the values for
    runs that lack one."""
    if side.reference is not None:
        reference = side.reference
        return {
            ("hardware", "vendor"): reference.vendor,
            ("hardware", "device"): reference.device,
            ("hardware", "shape"): f"{reference.nodes}x{reference.devices_per_node}",
            ("precision", "precision"): reference.precision,
        }
    found: dict[Condition, dict[str, None]] = {}
    for recorded in side.runs:
        of_run = dict(_run_conditions(recorded))
        for name, text in {**(absent if absent and recorded.nodes else {}), **of_run}.items():
            found.setdefault(name, {})[text] = None
    return {
        name: ", ".join(text or "-" for text in texts) if len(texts) > 1 else next(iter(texts))
        for name, texts in found.items()
    }


def is_identity(key: str) -> bool:
    """Return True for a key of the configuration that says which model or data it is. `obstacles` compares those."""
    return key.startswith(("model.", "data.")) and key not in HOW_NOT_WHAT


def setup(run: Run) -> Iterator[tuple[Condition, str]]:
    """Yield the conditions that repeats have in common."""
    job = run.job
    yield ("hardware", "vendor"), job.vendor
    yield ("hardware", "device"), job.device_model.model
    yield ("hardware", "shape"), job.shape
    yield ("precision", "precision"), job.precision.name
    for key, value in flatten(job.config.values):
        if key != "precision" and not is_identity(key):
            yield ("configuration", key), units.setting(value)


def _run_conditions(recorded: RecordedRun) -> Iterator[tuple[Condition, str]]:
    """Yield all conditions of a run. The first node stands for all: a run on nodes that differ says so on its page."""
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
        for name, fact in node.environment.facts.items():
            subject: Subject = "hardware" if name in HARDWARE_FACTS else "environment"
            yield ("software" if name in SOFTWARE_FACTS else subject, name), fact.value or "/"
        yield from _lists(node)
        versions = next((facts.versions for facts in node.vendors if facts.vendor == job.vendor), {})
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


# --- what must not differ: named before any number, and then without a verdict ----------------------------------------


def refuse_mixtures(sides: Sequence[Side]) -> None:
    """Raise BadInput unless the runs of each side are repeats of one another, all sides are of one case (metrics of two
    cases may have the same names, and never the same meaning), and no run is on two sides."""
    for side in sides:
        runs = [recorded.run for recorded in side.runs]
        for other in runs[1:]:
            ours, theirs, group = _common(runs[0]), _common(other), runs[0].group
            for name in {**ours, **theirs}:
                one, two = ours.get(name, "/"), theirs.get(name, "/")
                if one != two and name != SEED:
                    advice = f"name one arm: {group.id}/A or /B" if group and group.arm else "name fewer runs"
                    raise BadInput(
                        f"the runs of {side.word} are not repeats of one another: {name} is {one} in {runs[0].id}, "
                        f"{two} in {other.id}; {advice}"
                    )
    cases = {side.case.name: f"{side.case.name} ({side.word})" for side in sides}
    if len(cases) > 1:
        raise BadInput(f"cannot compare runs of different cases: {', '.join(cases.values())}; name runs of one case")
    owners: dict[str, str] = {}
    for side in sides:
        for recorded in side.runs:
            if recorded.run.id in owners:
                both = f"{owners[recorded.run.id]} and {side.word}"
                raise BadInput(f"run {recorded.run.id} is on two sides, {both}; a run counts once")
        owners |= {recorded.run.id: side.word for recorded in side.runs}


def _common(run: Run) -> dict[str, str]:
    same = {name: text for (_, name), text in setup(run)}
    return {"case": run.manifest.name, "simulated": units.setting(run.simulated), **same, **identity(run)}


def obstacles(baseline: Side, other: Side) -> Iterator[Message]:
    """Yield the reasons why two sides of one case cannot be compared."""
    for side in (baseline, other):
        if side.is_simulated:
            yield message("compare.simulated", side=side.letter)
    if baseline.reference is not None or other.reference is not None:
        for side in (baseline, other):
            for run in (recorded.run for recorded in side.runs[:1]):
                profile = run.manifest.profiles.get(run.job.profile)
                if profile is None or not profile.published:  # published results are of one profile
                    yield message("compare.unpublished", side=side.letter, profile=run.job.profile)
        return
    ours, theirs = baseline.runs[0].run, other.runs[0].run
    one, two = identity(ours), identity(theirs)
    for name in {**one, **two}:
        a, b = one.get(name), two.get(name)
        if a != b and a is not None and b is not None:
            text: Message | str = name if "." in name else message(f"compare.name_{name}")
            yield message("compare.contrast", name=text, a=baseline.letter, value=a, b=other.letter, other=b)
    files, others = ({file.path: file.sha256 for file in run.job.data_files} for run in (ours, theirs))
    different = [path for path in files if others and files[path] != others.get(path)]
    if different:
        more = message("compare.more", count=len(different) - NAMED) if len(different) > NAMED else ""
        yield message("compare.files", a=baseline.letter, b=other.letter, files=different[:NAMED], more=more)


def identity(run: Run) -> dict[str, str]:
    """Return what decides the work: name -> text."""
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
