"""Columns, rows and the words of a configuration, one by one."""

import pytest
from report_builders import MANIFEST, changed, metric, metrics, recorded
from report_reading import unpadded

from flagperf.report.document import Empty, Value
from flagperf.report.sections.result_tables import columns
from flagperf.report.wording import configuration, overrides, short_ids
from flagperf.spec.manifest import Page, Quality
from flagperf_publish.pages.layouts import page


def against_measured_peak():
    added = {name: metric(name, 0.1) for name in ("mfu_useful", "mfu_nominal-6n")}
    figures = {**metrics(), **added}
    marked = {name: changed(each, marks=("measured_peak",)) for name, each in figures.items() if name.startswith("mfu")}
    return recorded(figures={**figures, **marked})


@pytest.mark.parametrize(("lang", "name"), [("en", "MFU (measured peak)"), ("zh", "MFU（实测峰值）")])
def test_a_peak_that_was_measured_is_named_in_the_column_and_the_notes(lang, name):
    text = page([against_measured_peak()], lang)
    assert f"\\*{name} |" in text
    assert len([line for line in text.splitlines() if line.startswith("  - ") and name in line]) == 3
    assert "MFU" not in text.replace(name, "").replace("- MFU\n", "")
    other = recorded()
    other = changed(other, run=changed(other.run, id="other"))
    assert f"\\*{name} |" not in page([against_measured_peak(), other], lang)


@pytest.mark.parametrize(
    ("device", "nodes", "per_node", "chinese", "english"),
    [
        ("A100", 1, 1, "A100单机单卡（1x1）", "A100, 1 node, 1 device (1x1)"),
        ("A100", 1, 8, "A100单机8卡（1x8）", "A100, 1 node, 8 devices (1x8)"),
        ("A100", 2, 8, "A100两机16卡（2x8）", "A100, 2 nodes, 16 devices (2x8)"),
        ("C500", 4, 8, "C500四机32卡（4x8）", "C500, 4 nodes, 32 devices (4x8)"),
        ("R300", 10, 8, "R300十机80卡（10x8）", "R300, 10 nodes, 80 devices (10x8)"),
        ("R300", 12, 8, "R30012机96卡（12x8）", "R300, 12 nodes, 96 devices (12x8)"),
    ],
)
def test_configuration_cell(device, nodes, per_node, chinese, english):
    assert configuration(device, nodes, per_node, "zh") == chinese
    assert configuration(device, nodes, per_node, "en") == english


def test_overrides_have_page_names_and_the_shortest_numbers_and_leave_out_standard_values():
    run = recorded(set_values={"training.batch_size": 96, "training.learning_rate": 1.5e-4, "model.sequence": 128}).run
    assert overrides(run) == "bs=96, lr=1.5e-4, model.sequence=128"
    assert overrides(recorded(set_values={"training.batch_size": 32}).run) == ""


@pytest.mark.parametrize(
    ("ids", "short"),
    [
        (["t-glm-cpu-1x1-a"], ["t"]),
        (["1-glm-a", "2-glm-b"], ["1", "2"]),
        (["t-glm-a", "t-glm-b", "t-other-c"], ["t-glm-a", "t-glm-b", "t-other"]),
        (["near", "near-er"], ["near", "near-er"]),
    ],
)
def test_ids_are_shortened_as_far_as_they_differ(ids, short):
    assert list(short_ids(ids).values()) == short


def cell(name: str, figures=None, manifest=MANIFEST, **fields):
    wanted = changed(manifest, page=Page((name,), ()))
    return columns(wanted)[0].of_run(recorded(figures=figures, manifest=wanted, **fields).run, "en")


@pytest.mark.parametrize(
    ("name", "figure", "text"),
    [
        ("e2e_time", 361, "361.0"),
        ("p_core", 1942.649, "1942.6"),
        ("token/p/s", 253.614, "253.61"),
        ("token/p/s", 2788.4, "2788"),
        ("loss", 1.6400, "1.64"),
        ("loss", 3.00752, "3.0075"),
        ("mfu", 0.3605, "36.0%"),
        ("acc", 0.38, "0.380"),
    ],
)
def test_every_type_has_one_format(name, figure, text):
    assert cell(name, {name: metric(name, figure)}).text == text


def test_quality_is_a_column_in_its_own_format_and_comes_before_a_metric_of_that_name():
    qualities = (Quality("acc(MMLU)", "share", "right / asked"), Quality("loss", "nats", "mean", format="one_decimal"))
    manifest = changed(MANIFEST, qualities=qualities)
    assert cell("acc(MMLU)", {"x": metric("acc(MMLU)", 0.4321)}, manifest).text == "0.432"
    assert cell("loss", {"x": metric("loss", 1.25)}, manifest).text == "1.2"


def test_memory_has_the_marks_of_both_parts_once_and_the_reason_of_the_part_that_is_missing():
    marked = {name: changed(metrics()[name], marks=("unverified_mapping",)) for name in ("mem_used", "mem_total")}
    assert cell("mem", marked) == Value("37.0/64.0", marks=("unverified_mapping",))
    marked["mem_total"] = metric("mem_total", None, reason="invalid_telemetry", detail="0 bytes")
    assert cell("mem", marked) == Empty("invalid_telemetry", "0 bytes")


def test_metric_that_was_never_recorded_is_not_measured():
    assert cell("p_core", {}) == Empty("not_measured", "p_core")


def test_text_of_a_missing_language_falls_back_to_english():
    manifest = changed(MANIFEST, task={"en": "Text classification"})
    assert "| 任务类别 | Text classification |" in unpadded(page([recorded(manifest=manifest)], "zh"))
