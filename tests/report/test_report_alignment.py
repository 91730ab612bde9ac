"""An alignment as a document: facts in the unit of the rule, a verdict with a status, the curves as a chart."""

import msgspec
import pytest
from report_terminal import facts_of

from flagperf.metrics.alignment import RULES, CurvePoint, LossCurve, align_curves
from flagperf.report.document import Chart, Facts, Status
from flagperf.report.screens import alignment_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.render.markdown import to_markdown


def curve(losses) -> LossCurve:
    return LossCurve("toy", tuple(CurvePoint(step, loss, 8) for step, loss in enumerate(losses, start=1)))


FALLING = [10 / step for step in range(1, 31)]


def report(losses, rule, limit=None):
    rule = RULES[rule] if limit is None else msgspec.structs.replace(RULES[rule], limit=limit)
    one, other = curve(losses), curve(FALLING)
    return alignment_report(align_curves(one, other, rule), one, other)


@pytest.mark.parametrize(
    ("rule", "limit", "error", "largest"),
    [
        ("exact", 1e-5, 1.5e-7, "1.5e-7"),
        ("exact", 1e-2, 0.004, "0.004"),
        ("flagperf-2pct", None, 0.004, "0.4%"),
        ("flagperf-2pct", None, 1.5e-7, "1.5e-05%"),
    ],
)
def test_errors_are_in_the_unit_of_the_rules_limit(rule, limit, error, largest):
    found = facts_of(report([loss * (1 + error) for loss in FALLING], rule, limit))
    assert (found["largest error"][0], found["mean error"][0]) == (largest, largest)
    assert ("%" in found["drift"][0]) == (rule == "flagperf-2pct")


@pytest.mark.parametrize(("factor", "good"), [(1.01, True), (1.5, False)])
def test_the_verdict_is_a_status(factor, good):
    blocks = report([loss * factor for loss in FALLING], "flagperf-2pct").blocks
    (found,) = [block for block in blocks if isinstance(block, Facts)]
    assert found.facts[-1].cell == Status(str(good), good)


def test_the_curves_are_a_chart_that_renderers_of_text_leave_out():
    document = report([None, *FALLING[1:]], "flagperf-2pct")
    (chart,) = [block for block in document.blocks if isinstance(block, Chart)]
    assert [series.name for series in chart.series] == ["run", "reference"]
    assert [len(series.points) for series in chart.series] == [29, 30]
    assert chart.series[1].points[:2] == ((1, 10.0), (2, 5.0))
    for text in (to_terminal(document, width=80), to_markdown(document)):
        assert chart.title not in text
