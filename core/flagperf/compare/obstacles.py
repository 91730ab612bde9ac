"""What makes two sides incomparable. It is said before any number, and there is no verdict then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flagperf import units
from flagperf.compare.conditions import is_identity, setup
from flagperf.compare.side import SEED, Side
from flagperf.errors import BadInput
from flagperf.messages import Message, message
from flagperf.spec import flatten
from flagperf.store.run import Run

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
        for name, (ours, theirs) in _changes(runs[0], other).items():
            has_arms = runs[0].group is not None and runs[0].group.arm
            advice = f"name one arm: {runs[0].group.id}/A or /B" if has_arms and runs[0].group else "name fewer runs"
            raise BadInput(
                f"the runs of {side.word} are not repeats of one another: {name} is {ours} in {runs[0].id}, {theirs} "
                f"in {other.id}; {advice}"
            )


def _changes(first: Run, other: Run) -> dict[str, tuple[str, str]]:
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
