"""Two settings that take turns on the same nodes: A is what was asked for, B the same with other values."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.errors import BadInput
from flagperf.plan.plan import Plan
from flagperf.spec import RunSpec, parse_assignment

OPTION = "--interleave-with"


def other_setting(spec: RunSpec, changes: Sequence[str]) -> RunSpec:
    """`precision` is a key like all others."""
    keys = [parse_assignment(text, OPTION)[0] for text in changes]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"{OPTION} gives {key} more than once")
    kept = [text for text in spec.set if parse_assignment(text)[0] not in keys]
    precision = None if "precision" in keys else spec.precision
    return msgspec.structs.replace(spec, set=(*kept, *changes), precision=precision)


def refuse_equal(arms: Sequence[Plan]) -> None:
    values = [plan.job.config.values for plan in arms]
    if len(values) > 1 and values[0] == values[1]:
        raise BadInput(f"{OPTION} changes no value: both settings are the same")


def turns(count: int, arms: Sequence[str]) -> list[str]:
    """So many runs of each: A B, B A, A B, ... What drifts slowly then affects both alike."""
    return [arm for turn in range(count) for arm in (arms if turn % 2 == 0 else reversed(arms))]
