"""Sides by what the user named: runs, patterns, tags, groups of `run --repeat`, published results."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from flagperf.compare.side import Side
from flagperf.errors import BadInput, unknown_name
from flagperf.plausibility.doubts import read_marked
from flagperf.spec import Manifest
from flagperf.spec.published_names import PUBLISHED, find_published, published_names
from flagperf.store.groups import PREFIX, find_group, find_runs
from flagperf.store.imported import references_of
from flagperf.store.run import RecordedRun

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
    if not word.startswith(PREFIX) or "/" in word:
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
