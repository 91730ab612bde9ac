"""Side: a group of runs or a published result, found by name. The run is the unit of a comparison."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from flagperf.bundle.bundle import read_record
from flagperf.bundle.imported import references_of
from flagperf.bundle.listing import GROUP_PREFIX, find_group, find_runs
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.compare.ratio import Ratio, welch, with_interval
from flagperf.errors import BadInput, unknown_name
from flagperf.metrics.entry import Absent
from flagperf.metrics.observed import Observed
from flagperf.plausibility.doubts import read_marked
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import PUBLISHED, PublishedResult, find_published, published_names
from flagperf.stats import effective_number, mean_of_batches

SEED = "training.seed"
"""Repeats may differ in it."""


class Side(msgspec.Struct, frozen=True):
    letter: str
    """The name in tables: the baseline is A."""
    word: str
    """The name that the user gave."""
    runs: tuple[RecordedRun, ...] = ()
    """Runs with results, in the order of running."""
    left_out: tuple[Run, ...] = ()
    """Runs without results; or with, where the other run of the pair has none."""
    reference: PublishedResult | None = None
    manifest: Manifest | None = None
    """The manifest of the reference's case."""

    @property
    def case(self) -> Manifest:
        """Return the manifest of the reference, else of the newest run."""
        if self.manifest is not None:
            return self.manifest
        return self.runs[-1].run.manifest

    @property
    def is_simulated(self) -> bool:
        return any(recorded.run.simulated for recorded in self.runs)


def whole_pairs(sides: Sequence[Side]) -> list[Side]:
    """Leave out runs whose pair is not whole from two sides that took turns: values and their ratio are of the same
    runs. Return other sides as they are."""
    pairs = pairs_of(*sides) if len(sides) == 2 else []
    found = []
    for index, side in enumerate(sides):
        ids = {pair[index].id for pair in pairs} if pairs else {recorded.run.id for recorded in side.runs}
        kept = tuple(recorded for recorded in side.runs if recorded.run.id in ids)
        others = tuple(recorded.run for recorded in side.runs if recorded.run.id not in ids)
        found.append(msgspec.structs.replace(side, runs=kept, left_out=(*side.left_out, *others)))
    return found


def pairs_of(baseline: Side, other: Side) -> list[tuple[Run, Run]]:
    """Return neighbouring runs of two settings that took turns (`run --interleave-with`). Empty for sides that did
    not."""
    ours, others = _by_turn(baseline), _by_turn(other)
    return [(ours[turn], others[turn]) for turn in ours if turn in others]


def _by_turn(side: Side) -> dict[tuple[str, int], Run]:
    """Return the runs by group and number of the pair. Empty if a run does not belong to such a group."""
    runs = [recorded.run for recorded in side.runs]
    found = {(run.group.id, run.group.pair): run for run in runs if run.group is not None and run.group.arm}
    return found if len(found) == len(runs) else {}


# Sides by what the user named: runs, patterns, tags, groups of `run --repeat`, published results.


LETTERS = string.ascii_uppercase

HOW = "a side is a run, RUN,RUN, a pattern in quotes, tag:WORD, a group of `run --repeat`, or published:NAME"


def named_sides(
    words: Sequence[str], baseline: str | None, runs_dir: Path, cases: Callable[[], Iterable[Manifest]]
) -> list[Side]:
    """Return the sides, the baseline first. A single word is a group of two settings that took turns. `cases` returns
    the installed cases, for published results."""
    if len(words) == 1 and words[0].startswith(GROUP_PREFIX) and "/" not in words[0]:
        name, arms = find_group(words[0], runs_dir)
        if len(arms) < 2:
            raise BadInput(f"{name} has runs of one setting; name another side to compare it with; {HOW}")
        sides = [_side_of(f"{name}/{arm}", paths) for arm, paths in sorted(arms.items())]
    else:
        own = [_side_of(word, find_runs(word, runs_dir)) for word in words if not word.startswith(PUBLISHED)]
        manifests, places = [side.case for side in own], iter(own)
        sides = [_published(w, manifests, runs_dir, cases) if w.startswith(PUBLISHED) else next(places) for w in words]
    if len(sides) < 2:
        raise BadInput(f"a comparison needs two sides or more; {HOW}")
    if len(sides) > len(LETTERS):
        raise BadInput(f"a comparison has at most {len(LETTERS)} sides; got {len(sides)}")
    if baseline is not None:
        chosen = next((side for side in sides if side.word == baseline), None)
        if chosen is None:
            raise unknown_name("side for --baseline", baseline, [side.word for side in sides])
        sides = [chosen, *(side for side in sides if side is not chosen)]
    return [msgspec.structs.replace(side, letter=letter) for side, letter in zip(sides, LETTERS, strict=False)]


def _side_of(word: str, paths: Sequence[Path]) -> Side:
    """Read the runs of a side. Raise BadInput if none of them has results."""
    recorded = read_marked(list({path.resolve(): path for path in paths}.values()))
    found = [each for each in recorded if each.run.has_results]
    # In the order of running: the time alone has whole seconds.
    found.sort(key=lambda each: (each.run.created, each.run.group.index if each.run.group else 0, each.run.id))
    left_out = tuple(each.run for each in recorded if not each.run.has_results)
    if not found:
        endings = ", ".join(f"{run.id} ({run.ending.status if run.ending else 'no ending'})" for run in left_out[:4])
        raise BadInput(f"{word} has no run with results to compare: {endings}")
    return Side("", word, tuple(found), left_out)


def _published(
    word: str, manifests: Sequence[Manifest], runs_dir: Path, cases: Callable[[], Iterable[Manifest]]
) -> Side:
    """Find a published result of the cases of the other sides; of all cases, if there are none."""
    installed = {manifest.name: manifest for manifest in cases()}
    wanted = {manifest.name: installed.get(manifest.name, manifest) for manifest in manifests} or installed
    known = {
        each: (reference, manifest)
        for manifest in wanted.values()
        for each, reference in published_names(manifest.name, references_of(manifest, runs_dir)).items()
    }
    name = find_published(word.removeprefix(PUBLISHED), known)
    reference, manifest = known[name]
    return Side("", PUBLISHED + name, reference=reference, manifest=manifest)


# One run against one: how far apart they are inside, by their steps. It says nothing about the next run.
#
# Steps are alike: their batches are made twice as long until the means of neighbours are independent.


class InsideRuns(msgspec.Struct, frozen=True):
    ratio: Ratio
    num_steps: tuple[int, int]
    effective: tuple[float, float]
    """The number of independent steps that would say as much."""


def inside_runs(ratio: float, baseline: Sequence[float], other: Sequence[float]) -> InsideRuns | None:
    """Return the ratio of their speeds with an interval, by the time that each step needs for a unit of work. None if a
    run has too few steps before they are independent."""
    parts = []
    for times in (baseline, other):
        found = mean_of_batches(times, lambda values: math.fsum(values) / len(values))
        if found is None or found.mean <= 0:
            return None
        parts.append(((found.error / found.mean) ** 2, found.degrees))
    error, degrees = welch(parts)
    found_ratio = with_interval(Ratio(ratio, "steps", error, degrees))
    return InsideRuns(found_ratio, (len(baseline), len(other)), (effective_number(baseline), effective_number(other)))


def step_times(recorded: RecordedRun) -> list[float]:
    """Return the compute time of every step after warm-up for a unit of its work, in nanoseconds. Empty for a run that
    has no steps, and if its files cannot be read: `runs verify` says why."""
    run = recorded.run
    observed = Observed(run.job, run.manifest, read_record(Path(recorded.path)))
    try:
        window = observed.window if observed.kind.has_steps else None
    except BadInput:
        return []
    if window is None or isinstance(window, Absent):
        return []
    work = window.per_step(run.manifest.counts)
    return [time / count for time, count in zip(window.compute_ns, work, strict=True) if count > 0]
