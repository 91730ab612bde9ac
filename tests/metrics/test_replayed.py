"""Which replayed operators make up a step, by numbers that can be added in the head."""

import pytest

from flagperf.metrics.row_figures import step_breakdown
from flagperf.metrics.rows import MeasuredRow


def row(operator, per_step, median, **more):
    labels = {"operator": operator, "arguments": "f32[8]", "per_step": per_step}
    return MeasuredRow("recorded", labels, "s", median=median, **more)


def test_times_of_calls_are_counted_as_often_as_a_step_makes_them():
    found = step_breakdown([row("aten::add", "6", 1.0), row("aten::mm", "2", 5.0), row("aten::mm", "0.5", 8.0)])
    assert found.seconds == 6 + 10 + 4
    assert [(each.operator, each.seconds, each.share) for each in found.calls] == [
        ("aten::mm", 10.0, 0.5),
        ("aten::add", 6.0, 0.3),
        ("aten::mm", 4.0, 0.2),
    ]
    assert [(each.operator, each.seconds, each.num_different) for each in found.operators] == [
        ("aten::mm", 14.0, 2),
        ("aten::add", 6.0, 1),
    ]


def test_the_roofline_of_a_step_needs_that_of_every_call():
    found = step_breakdown([row("aten::mm", "2", 5.0, roofline=1.0), row("aten::mm", "1", 2.0, roofline=1.0)])
    assert found.operators[0].roofline_seconds == found.roofline_seconds == 3.0
    assert found.operators[0].roofline_share == pytest.approx(3 / 12)
    found = step_breakdown([row("aten::mm", "2", 5.0, roofline=1.0), row("aten::add", "1", 2.0)])
    assert (found.calls[0].roofline_seconds, found.roofline_seconds) == (2.0, None)


def test_what_was_in_a_cache_cannot_become_faster_at_the_roofline():
    found = step_breakdown([row("aten::add", "1", 2.0, roofline=3.0)])
    assert (found.roofline_seconds, found.calls[0].roofline_share) == (2.0, None)


@pytest.mark.parametrize(
    ("bound_by", "cache", "share"),
    [("bytes", "hot", None), ("bytes", "cold", 0.5), ("bytes", "unknown", 0.5), ("flops", "hot", 0.5)],
)
def test_bandwidth_does_not_bound_what_is_in_a_cache(bound_by, cache, share):
    call = row("aten::add", "1", 2.0, roofline=1.0, bound_by=bound_by, facts={"cache": cache})
    assert step_breakdown([call]).calls[0].roofline_share == share


def test_rows_without_a_value_are_apart():
    bad = MeasuredRow("recorded", {"operator": "aten::mm", "per_step": "1"}, "s", status="out_of_memory")
    found = step_breakdown([bad])
    assert (found.calls, found.seconds, found.failed) == ((), 0, (bad,))
