"""Side: a group of runs or a published result, found by name."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Sequence, Set
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
from flagperf.stats import MeanError, effective_number, mean_of_batches

# Side: what is compared. A group of runs, of which the run is the unit, or a published result.


SEED = "training.seed"
"""Repeats may differ in it."""


class Side(msgspec.Struct, frozen=True):
    letter: str
    """What it is called in tables: the baseline is A."""
    word: str
    """How the user named it."""
    runs: tuple[RecordedRun, ...] = ()
    """With results, in the order of running."""
    left_out: tuple[Run, ...] = ()
    """Without results; or with, where the other run of the pair has none."""
    reference: PublishedResult | None = None
    manifest: Manifest | None = None
    """Of a reference."""

    @property
    def case(self) -> Manifest:
        """Of the newest run."""
        if self.manifest is not None:
            return self.manifest
        return self.runs[-1].run.manifest

    @property
    def is_simulated(self) -> bool:
        return any(recorded.run.simulated for recorded in self.runs)


def whole_pairs(sides: Sequence[Side]) -> list[Side]:
    """Two sides that took turns, without the runs whose pair is not whole: values and their ratio are of the same runs.
    Other sides as they are."""
    pairs = pairs_of(*sides) if len(sides) == 2 else []
    if not pairs:
        return list(sides)
    return [_only(side, {pair[index].id for pair in pairs}) for index, side in enumerate(sides)]


def _only(side: Side, ids: Set[str]) -> Side:
    kept = tuple(recorded for recorded in side.runs if recorded.run.id in ids)
    others = tuple(recorded.run for recorded in side.runs if recorded.run.id not in ids)
    return msgspec.structs.replace(side, runs=kept, left_out=(*side.left_out, *others))


def pairs_of(baseline: Side, other: Side) -> list[tuple[Run, Run]]:
    """Neighbouring runs of two settings that took turns (`run --interleave-with`). Empty for sides that did not."""
    ours, others = _by_turn(baseline), _by_turn(other)
    return [(ours[turn], others[turn]) for turn in ours if turn in others]


def _by_turn(side: Side) -> dict[tuple[str, int], Run]:
    """Group and number of the pair -> run. Empty if one of the runs is of no such group."""
    runs = [recorded.run for recorded in side.runs]
    found = {(run.group.id, run.group.pair): run for run in runs if run.group is not None and run.group.arm}
    return found if len(found) == len(runs) else {}


# Sides by what the user named: runs, patterns, tags, groups of `run --repeat`, published results.


LETTERS = string.ascii_uppercase

HOW = "a side is a run, RUN,RUN, a pattern in quotes, tag:WORD, a group of `run --repeat`, or published:NAME"


def named_sides(
    words: Sequence[str], baseline: str | None, runs_dir: Path, cases: Callable[[], Iterable[Manifest]]
) -> list[Side]:
    """The baseline first. `cases` gives the installed ones, where published results are asked for."""
    sides = _interleaved(words[0], runs_dir) if len(words) == 1 else []
    if not sides:
        sides = [_side(word, runs_dir) for word in words if not word.startswith(PUBLISHED)]
        places = iter(sides)
        manifests = [side.case for side in sides]
        sides = [_published(w, manifests, runs_dir, cases) if w.startswith(PUBLISHED) else next(places) for w in words]
    if len(sides) < 2:
        raise BadInput(f"a comparison needs two sides or more; {HOW}")
    if len(sides) > len(LETTERS):
        raise BadInput(f"a comparison has at most {len(LETTERS)} sides; got {len(sides)}")
    return [_lettered(side, letter) for side, letter in zip(_baseline_first(sides, baseline), LETTERS, strict=False)]


def _lettered(side: Side, letter: str) -> Side:
    return msgspec.structs.replace(side, letter=letter)


def _baseline_first(sides: Sequence[Side], word: str | None) -> list[Side]:
    if word is None:
        return list(sides)
    chosen = [side for side in sides if side.word == word]
    if not chosen:
        raise unknown_name("side for --baseline", word, [side.word for side in sides])
    return [chosen[0], *(side for side in sides if side is not chosen[0])]


def _interleaved(word: str, runs_dir: Path) -> list[Side]:
    """The two arms of a group. Empty for anything else."""
    if not word.startswith(GROUP_PREFIX) or "/" in word:
        return []
    name, arms = find_group(word, runs_dir)
    if len(arms) < 2:
        raise BadInput(f"{name} has runs of one setting; name another side to compare it with; {HOW}")
    return [_of_paths(f"{name}/{arm}", paths) for arm, paths in sorted(arms.items())]


def _side(word: str, runs_dir: Path) -> Side:
    return _of_paths(word, find_runs(word, runs_dir))


def _of_paths(word: str, paths: Sequence[Path]) -> Side:
    """Raises BadInput if none of the runs has results."""
    recorded = read_marked(list({path.resolve(): path for path in paths}.values()))
    found = tuple(each for each in recorded if each.run.has_results)
    left_out = tuple(each.run for each in recorded if not each.run.has_results)
    if not found:
        endings = ", ".join(f"{run.id} ({run.ending.status if run.ending else 'no ending'})" for run in left_out[:4])
        raise BadInput(f"{word} has no run with results to compare: {endings}")
    return Side("", word, tuple(sorted(found, key=_turn)), left_out)


def _published(
    word: str, manifests: Sequence[Manifest], runs_dir: Path, cases: Callable[[], Iterable[Manifest]]
) -> Side:
    """Of the cases of the other sides; of all cases, if there are none."""
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


def _turn(recorded: RecordedRun) -> tuple[str, int, str]:
    """In the order of running: the time alone has whole seconds."""
    run = recorded.run
    return run.created, run.group.index if run.group else 0, run.id


# One run against one: how far apart they are inside, by their steps. It says nothing about the next run.
#
# Steps are alike: their batches are made twice as long until the means of neighbours are independent.


class InsideRuns(msgspec.Struct, frozen=True):
    ratio: Ratio
    num_steps: tuple[int, int]
    effective: tuple[float, float]
    """So many independent steps would say as much."""


def inside_runs(ratio: float, baseline: Sequence[float], other: Sequence[float]) -> InsideRuns | None:
    """The ratio of their speeds with an interval, by the time that each step needs for a unit of work. None if a run
    has too few steps before they are independent."""
    found = [mean_of_batches(times, _mean) for times in (baseline, other)]
    if any(each is None or each.mean <= 0 for each in found):
        return None
    own, others = (each for each in found if each is not None)
    error, degrees = welch([_relative(own), _relative(others)])
    found_ratio = with_interval(Ratio(ratio, "steps", error, degrees))
    return InsideRuns(found_ratio, (len(baseline), len(other)), (effective_number(baseline), effective_number(other)))


def _relative(found: MeanError) -> tuple[float, float]:
    return (found.error / found.mean) ** 2, found.degrees


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


# The steps of a recorded run, read again from its raw files.


def step_times(recorded: RecordedRun) -> list[float]:
    """Compute time of every kept step for a unit of its work, in nanoseconds. Empty for a run that has no steps, and if
    its files cannot be read: `runs verify` says why."""
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
