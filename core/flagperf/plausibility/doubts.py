"""Runs with the marks and doubts of the rules that they break. Whatever is shown of a run goes through here; what is
recorded and verified does not."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import TypeVar

import msgspec

from flagperf import units
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.listing import RunLine
from flagperf.bundle.run_record import Doubt, RecordedRun, Run
from flagperf.errors import BadInput
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility import row_checks, run_checks
from flagperf.plausibility.rules import Rule, Seen, scaling, seen, value_of

CHECKS = (*run_checks.CHECKS, *row_checks.CHECKS, *run_checks.WITHHELD_CHECKS)
"""Rules with their checks of one run. Some rules have several."""

Break = tuple[Rule, Seen]

M = TypeVar("M", Metric, MeasuredRow)


def read_marked(paths: Sequence[Path]) -> list[RecordedRun]:
    """Read bundles as they are shown."""
    return marked([read_bundle(path) for path in paths])


def marked(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return the runs with their marks and doubts. Those of an earlier call are found again, not doubled."""
    breaks = [list(_breaks(recorded.run)) for recorded in runs]
    for rule, check in BETWEEN:
        for index, found in check([recorded.run for recorded in runs]):
            breaks[index].append((rule, found))
    return [_with(recorded, found) for recorded, found in zip(runs, breaks, strict=True)]


def marked_line(line: RunLine, path: Path) -> RunLine:
    """Return a line of a list with the marks of its run. A run that cannot be read as a whole gives none."""
    try:
        run = read_marked([path])[0].run if line.headline else None
    except BadInput:
        run = None
    marks = {metric.name: metric.marks for metric in run.metrics} if run else {}
    headline = [msgspec.structs.replace(each, marks=marks.get(each.name, each.marks)) for each in line.headline]
    return msgspec.structs.replace(line, headline=tuple(headline))


def refusals(recorded: RecordedRun) -> Iterator[Seen]:
    """Yield why no page is written of a run. Figures of a run without results are not on a page."""
    if recorded.run.has_results:
        yield from (found for rule, found in _breaks(recorded.run) if rule.effect == "refused")


def _breaks(run: Run) -> Iterator[Break]:
    return ((rule, found) for rule, check in CHECKS for found in check(run))


def _with(recorded: RecordedRun, breaks: Sequence[Break]) -> RecordedRun:
    """Mark the metrics that each break concerns and the rows that such figures stand for. A metric without a value has
    its reason and gets no mark."""
    run, doubts = recorded.run, []
    marks: dict[str, dict[str, None]] = {}
    row_marks: dict[int, dict[str, None]] = {}
    for rule, found in breaks:
        is_of_rows = found.rows and not found.metrics
        concerned = [
            metric
            for metric in ([] if rule.effect == "withheld" or is_of_rows else run.metrics)
            if (not found.metrics or metric.name in found.metrics)
            and metric.value is not None
            and rule.may_mark(metric.name, run)
        ]
        doubts.append(Doubt(rule.name, found.message, found.metrics or tuple(metric.name for metric in concerned)))
        for metric in concerned:
            marks.setdefault(metric.name, {})[rule.name] = None
        figures_of, own_rows = [metric.inputs for metric in concerned if "row" in metric.inputs], {*found.rows}
        for index, row in enumerate(run.rows):
            is_of_figure = any(row.name == of["row"] and row.labels == of.get("labels") for of in figures_of)
            if index in own_rows or is_of_figure:
                row_marks.setdefault(index, {})[rule.name] = None
    metrics = tuple(_with_marks(metric, marks.get(metric.name, {})) for metric in run.metrics)
    rows = tuple(_with_marks(row, row_marks.get(index, {})) for index, row in enumerate(run.rows))
    changed = msgspec.structs.replace(run, metrics=metrics, rows=rows)
    return msgspec.structs.replace(recorded, run=changed, doubts=tuple(dict.fromkeys(doubts)))


def _with_marks(value: M, added: Iterable[str]) -> M:
    marks = tuple(dict.fromkeys((*value.marks, *added)))
    return value if marks == value.marks else msgspec.structs.replace(value, marks=marks)


# --- doubts that only several runs raise ----------------------------------------------------------------------------


SCALING_OVER_100 = Rule(
    "scaling_over_100",
    "4058.3 samples/s on two machines called 8 cards, by its words 176 % of eight times the 287.9 of one:"
    " training/nvidia/distilbert-pytorch/README.md",
    of=("runs", "page"),
    metrics=("p_core", "token/p/s"),
    limits={"share": 1.02},
)


def scaling_over_100(runs: Sequence[Run]) -> Iterator[tuple[int, Seen]]:
    """Compare runs of one configuration with the one on the fewest devices."""
    groups: dict[Hashable, list[int]] = {}
    for index, run in enumerate(runs):
        job = run.job
        case, card = (job.case, job.case_version, job.profile), (job.vendor, job.device_model.model, run.simulated)
        groups.setdefault((case, job.precision.name, repr(job.config.values), card), []).append(index)
    for indices in groups.values():
        base = runs[min(indices, key=lambda index: runs[index].job.world_size)]
        for index, metric in product(indices, SCALING_OVER_100.metrics):
            rate, base_rate = value_of(runs[index], metric), value_of(base, metric)
            devices, base_devices = runs[index].job.world_size, base.job.world_size
            if not rate or not base_rate or devices <= base_devices:
                continue
            is_per_device = metric == "token/p/s"
            share = rate / base_rate if is_per_device else scaling(rate, devices, base_rate, base_devices)
            if share > SCALING_OVER_100.limits["share"]:
                counts = {"devices": devices, "base_devices": base_devices, "base": base.id}
                figures = {"what": metric, "share": units.percent(share)}
                yield index, seen("doubt.scaling_over_100", (metric,), **figures, **counts)


IDENTICAL_FIGURES = Rule(
    "identical_figures",
    "the power of a P2P page copied from another vendor's, TDP included: "
    "base/benchmarks/interconnect-P2P_interserver/iluvatar/BI150/README.md",
    of=("runs", "page"),
    metrics=("e2e_time", "p_core", "p_infer_core", "energy", "power_mean"),
    limits={"equal": 2},
)


def identical_figures(runs: Sequence[Run]) -> Iterator[tuple[int, Seen]]:
    """Look for two runs that agree in every digit of several figures, which never happens."""
    for one, other in combinations(range(len(runs)), 2):
        if runs[one].id == runs[other].id:
            continue
        values = {name: (value_of(runs[one], name), value_of(runs[other], name)) for name in IDENTICAL_FIGURES.metrics}
        equal = [name for name, (value, others) in values.items() if value and value == others]
        if len(equal) >= IDENTICAL_FIGURES.limits["equal"]:
            for index, twin in ((one, other), (other, one)):
                yield index, seen("doubt.identical_figures", equal, names=equal, other=runs[twin].id)


BETWEEN: tuple[tuple[Rule, Callable[[Sequence[Run]], Iterator[tuple[int, Seen]]]], ...] = (
    (SCALING_OVER_100, scaling_over_100),
    (IDENTICAL_FIGURES, identical_figures),
)
"""Rules with their checks of several runs, which give the index of the run that each doubt is of."""
