"""Doubts that only several runs raise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations

from flagperf import units
from flagperf.messages import message
from flagperf.plausibility.arithmetic import scaling
from flagperf.plausibility.rule import Rule, Seen, rules, value_of
from flagperf.store.run import RecordedRun, Run

Between = tuple[int, str, Seen]
"""Index of the run, id of the rule, what was seen."""


def between(runs: Sequence[RecordedRun]) -> Iterator[Between]:
    for name, check in CHECKS:
        for index, seen in check([recorded.run for recorded in runs], rules()[name]):
            yield index, name, seen


def scaling_over_100(runs: Sequence[Run], rule: Rule) -> Iterator[tuple[int, Seen]]:
    """Of the same configuration, against the run on the fewest devices."""
    groups: dict[Hashable, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(_setup(run), []).append(index)
    for indices in groups.values():
        base = min(indices, key=lambda index: runs[index].job.world_size)
        for index in indices:
            for metric, per_device in (("p_core", False), ("token/p/s", True)):
                yield from _scaled(runs[index], runs[base], metric, per_device, rule, index)


def _scaled(run: Run, base: Run, metric: str, per_device: bool, rule: Rule, index: int) -> Iterator[tuple[int, Seen]]:
    rate, base_rate = value_of(run, metric), value_of(base, metric)
    devices, base_devices = run.job.world_size, base.job.world_size
    if not rate or not base_rate or devices <= base_devices:
        return
    share = rate / base_rate if per_device else scaling(rate, devices, base_rate, base_devices)
    if share > rule.limits["share"]:
        counts = {"devices": devices, "base_devices": base_devices, "base": base.id}
        yield (
            index,
            Seen(message("doubt.scaling_over_100", what=metric, share=units.percent(share), **counts), (metric,)),
        )


def _setup(run: Run) -> Hashable:
    job = run.job
    card = job.vendor, job.device_model.model, run.simulated
    return job.case, job.case_version, job.profile, job.precision.name, repr(job.config.values), card


def identical_figures(runs: Sequence[Run], rule: Rule) -> Iterator[tuple[int, Seen]]:
    """Two runs never agree in every digit of several figures."""
    for one, other in combinations(range(len(runs)), 2):
        if runs[one].id == runs[other].id:
            continue
        equal = tuple(name for name in rule.metrics if _is_same(runs[one], runs[other], name))
        if len(equal) >= rule.limits["equal"]:
            for index, twin in ((one, other), (other, one)):
                yield index, Seen(message("doubt.identical_figures", names=list(equal), other=runs[twin].id), equal)


def _is_same(one: Run, other: Run, name: str) -> bool:
    value = value_of(one, name)
    return value is not None and value != 0 and value == value_of(other, name)


CHECKS: tuple[tuple[str, Callable[[Sequence[Run], Rule], Iterator[tuple[int, Seen]]]], ...] = (
    ("scaling_over_100", scaling_over_100),
    ("identical_figures", identical_figures),
)
