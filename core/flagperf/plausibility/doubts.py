"""Runs with the marks and doubts of the rules that they break. Whatever is shown of a run goes through here; what is
recorded and verified does not."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import msgspec

from flagperf import units
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.listing import RunLine
from flagperf.bundle.run_record import Doubt, RecordedRun, Run
from flagperf.errors import BadInput
from flagperf.messages import message
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility import row_checks, run_checks
from flagperf.plausibility.rules import Rule, Seen, scaling, value_of
from flagperf.plausibility.run_checks import withheld

CHECKS = (*run_checks.CHECKS, *row_checks.CHECKS)
"""Rules with their checks of one run. Some rules have several."""

Break = tuple[Rule, Seen]

M = TypeVar("M", Metric, MeasuredRow)


def read_marked(paths: Sequence[Path]) -> list[RecordedRun]:
    """Bundles as they are shown."""
    return marked([read_bundle(path) for path in paths])


def marked(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """A pure function of the recorded runs: marks and doubts of an earlier call are found again, not doubled."""
    breaks = [list(_breaks(recorded)) for recorded in runs]
    for rule, check in BETWEEN:
        for index, seen in check([recorded.run for recorded in runs]):
            breaks[index].append((rule, seen))
    return [_with(recorded, found) for recorded, found in zip(runs, breaks, strict=True)]


def marked_line(line: RunLine, path: Path) -> RunLine:
    """A line of a list, with the marks of its run. One that cannot be read as a whole stays as it is."""
    try:
        run = read_marked([path])[0].run if line.headline else None
    except BadInput:
        run = None
    found = {metric.name: metric.marks for metric in run.metrics} if run else {}
    headline = [msgspec.structs.replace(each, marks=found.get(each.name, each.marks)) for each in line.headline]
    return msgspec.structs.replace(line, headline=tuple(headline))


def refusals(recorded: RecordedRun) -> Iterator[Seen]:
    """Why no page is written of a run. Figures of a run without results are not on a page."""
    if recorded.run.has_results:
        yield from (seen for rule, seen in _breaks(recorded) if rule.effect == "refused")


def _breaks(recorded: RecordedRun) -> Iterator[Break]:
    yield from ((rule, seen) for rule, check in CHECKS for seen in check(recorded))
    yield from withheld(recorded.run)


def _with(recorded: RecordedRun, breaks: Sequence[Break]) -> RecordedRun:
    run, doubts = recorded.run, []
    marks: dict[str, dict[str, None]] = {}
    row_marks: dict[int, dict[str, None]] = {}
    for rule, seen in breaks:
        names = _marked_metrics(run, rule, seen)
        doubts.append(Doubt(rule.name, seen.message, seen.metrics or names))
        for each in names:
            marks.setdefault(each, {})[rule.name] = None
        for index in (*seen.rows, *_rows_of(run, names)):
            row_marks.setdefault(index, {})[rule.name] = None
    metrics = tuple(_with_marks(metric, marks.get(metric.name, {})) for metric in run.metrics)
    marked_rows = tuple(_with_marks(row, row_marks.get(index, {})) for index, row in enumerate(run.rows))
    changed = msgspec.structs.replace(run, metrics=metrics, rows=marked_rows)
    return msgspec.structs.replace(recorded, run=changed, doubts=tuple(dict.fromkeys(doubts)))


def _marked_metrics(run: Run, rule: Rule, seen: Seen) -> tuple[str, ...]:
    """Those that have a value: one that is missing has its reason."""
    if rule.effect == "withheld" or (seen.rows and not seen.metrics):
        return ()
    wanted = seen.metrics or tuple(metric.name for metric in run.metrics)
    return tuple(
        metric.name
        for metric in run.metrics
        if metric.name in wanted and metric.value is not None and rule.may_mark(metric.name, run)
    )


def _rows_of(run: Run, names: Sequence[str]) -> Iterator[int]:
    """Indices of the rows that marked figures stand for."""
    figures_of = [metric.inputs for metric in run.metrics if metric.name in names and "row" in metric.inputs]
    for index, row in enumerate(run.rows):
        if any(row.name == inputs["row"] and row.labels == inputs.get("labels") for inputs in figures_of):
            yield index


def _with_marks(value: M, added: Iterable[str]) -> M:
    marks = tuple(dict.fromkeys((*value.marks, *added)))
    return value if marks == value.marks else msgspec.structs.replace(value, marks=marks)


# --- doubts that only several runs raise ----------------------------------------------------------------------------


SCALING_OVER_100 = Rule(
    "scaling_over_100",
    of=("runs", "page"),
    effect="marked",
    metrics=("p_core", "token/p/s"),
    limits={"share": 1.02},
    published=(
        "4058.3 samples/s on two machines called 8 cards, by its words 176 % of eight times the 287.9 of one:"
        " training/nvidia/distilbert-pytorch/README.md"
    ),
)


def scaling_over_100(runs: Sequence[Run]) -> Iterator[tuple[int, Seen]]:
    """Of the same configuration, against the run on the fewest devices."""
    groups: dict[Hashable, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(_setup(run), []).append(index)
    for indices in groups.values():
        base = min(indices, key=lambda index: runs[index].job.world_size)
        for index in indices:
            for metric, per_device in (("p_core", False), ("token/p/s", True)):
                yield from _scaled(runs[index], runs[base], metric, per_device, index)


def _scaled(run: Run, base: Run, metric: str, per_device: bool, index: int) -> Iterator[tuple[int, Seen]]:
    rate, base_rate = value_of(run, metric), value_of(base, metric)
    devices, base_devices = run.job.world_size, base.job.world_size
    if not rate or not base_rate or devices <= base_devices:
        return
    share = rate / base_rate if per_device else scaling(rate, devices, base_rate, base_devices)
    if share > SCALING_OVER_100.limits["share"]:
        counts = {"devices": devices, "base_devices": base_devices, "base": base.id}
        yield (
            index,
            Seen(message("doubt.scaling_over_100", what=metric, share=units.percent(share), **counts), (metric,)),
        )


def _setup(run: Run) -> Hashable:
    job = run.job
    card = job.vendor, job.device_model.model, run.simulated
    return job.case, job.case_version, job.profile, job.precision.name, repr(job.config.values), card


IDENTICAL_FIGURES = Rule(
    "identical_figures",
    of=("runs", "page"),
    effect="marked",
    metrics=("e2e_time", "p_core", "p_infer_core", "energy", "power_mean"),
    limits={"equal": 2},
    published=(
        "the power of a P2P page copied from another vendor's, TDP included: "
        "base/benchmarks/interconnect-P2P_interserver/iluvatar/BI150/README.md"
    ),
)


def identical_figures(runs: Sequence[Run]) -> Iterator[tuple[int, Seen]]:
    """Two runs never agree in every digit of several figures."""
    for one, other in combinations(range(len(runs)), 2):
        if runs[one].id == runs[other].id:
            continue
        equal = tuple(name for name in IDENTICAL_FIGURES.metrics if _is_same(runs[one], runs[other], name))
        if len(equal) >= IDENTICAL_FIGURES.limits["equal"]:
            for index, twin in ((one, other), (other, one)):
                yield index, Seen(message("doubt.identical_figures", names=list(equal), other=runs[twin].id), equal)


def _is_same(one: Run, other: Run, name: str) -> bool:
    value = value_of(one, name)
    return value is not None and value != 0 and value == value_of(other, name)


BETWEEN: tuple[tuple[Rule, Callable[[Sequence[Run]], Iterator[tuple[int, Seen]]]], ...] = (
    (SCALING_OVER_100, scaling_over_100),
    (IDENTICAL_FIGURES, identical_figures),
)
"""Rules with their checks of several runs, which give the index of the run that each doubt is of."""
