"""An alignment as a document, and the verdict on the loss on pages, cards and in JSON."""

import json

import msgspec
import pytest
from golden_runs import REFERENCE, judged, large_batch_run
from report_reading import facts_of, footnotes, performance, value

from flagperf.metrics.alignment import RULES, CurvePoint, LossCurve, align_curves
from flagperf.report.document import Chart, Facts, Status
from flagperf.report.run_json import to_json
from flagperf.report.screens import alignment_report, run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.pages.layouts import page
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


def exported_verdict(run):
    (exported,) = json.loads(to_json([run]))["runs"]
    return exported["metrics"]["loss_aligned"]


def aligned_cell(run):
    """Return its text and the note that it points to."""
    text = page([run], "en")
    word, numbers = value(performance(text)[0]["Loss aligned"])
    return word, footnotes(text)[numbers[0]] if numbers else ""


def test_without_a_reference_the_cell_says_so_and_is_neither_blank_nor_false():
    run = large_batch_run()
    assert aligned_cell(run) == ("/", "not_applicable (does not apply here): no reference curve was given")
    assert "没有给出参考曲线" in page([run], "zh")
    verdict = exported_verdict(run)
    assert (verdict["value"], verdict["detail"]) == (None, "no reference curve was given")


def test_a_loss_that_does_not_follow_is_false_on_page_card_and_in_json():
    run = judged(large_batch_run(), 1.03, 1024)
    assert aligned_cell(run) == ("False", "")
    said = "loss aligned False by rule flagperf-2pct (mean relative error below 2% from step 21 on), reference"
    assert f"{said} {REFERENCE.run} (nvidia H800-80GB 4x8); mean relative error 3%" in page([run], "en")
    assert "精度对齐False，规则flagperf-2pct" in page([run], "zh")
    assert said in to_terminal(run_report([run]), width=400)
    verdict = exported_verdict(run)
    assert (verdict["value"], verdict["inputs"]["reference_name"]) == (0, REFERENCE.run)
    assert verdict["inputs"]["mean_error"] == pytest.approx(0.03)
