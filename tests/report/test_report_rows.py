"""Measured rows on pages, on the terminal, as CSV and as charts."""

import csv
import io
from typing import get_args

import msgspec
import pytest

from flagperf.api import Peak
from flagperf.bundle.run_record import Ending, RecordedRun
from flagperf.errors import BadInput
from flagperf.events import RowStatus
from flagperf.messages import meaning, message
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow, Speedup
from flagperf.report.document import Bullets, Chart, Empty, HeatMap, Link, Table, Text
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.operator_tables import operator_blocks
from flagperf.report.sections.result_tables import general
from flagperf.report.sections.row_tables import figure_table, figures, measured_tables
from flagperf.spec.manifest import Page, RowFigure
from flagperf.spec.published import PublishedResult, PublishedRows
from flagperf_publish.export.data_files import to_csv
from flagperf_publish.pages.row_charts import row_charts
from flagperf_publish.pages.setup import telemetry
from run_builders import make_run, minimal_job, minimal_manifest


def row(rank=0, median=1e-3, name="gemm", **more):
    labels = more.pop("labels", {"precision": "fp16", "devices": "single"})
    return MeasuredRow(name, labels, "s", rank, 30, median, median, median, **more)


def run_of(*rows, **job):
    return msgspec.structs.replace(make_run("r"), rows=rows, job=minimal_job(**job))


def cells(table, number=0):
    return [getattr(cell, "text", cell) for cell in table.rows[number]]


def operator(name, median=1e-3, library="eager", **more):
    labels = {"operator": name, "group": more.pop("group", "pointwise"), "dtype": "fp32", "library": library}
    return row(median=median, name="operators", labels=labels, **more)


# --- tables ---------------------------------------------------------------------------------------------------------


FLOPS = {"flops": 10**9}


def of_ranks(*values, unit="s", **more):
    return [msgspec.structs.replace(row(rank, value, **more), unit=unit) for rank, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (of_ranks(*[1e-3] * 5, 1.2e-3, 1e-3, work=FLOPS), ["1 ms", "1 - 1.2", "30", "1 TFLOPS", ""]),
        (of_ranks(1e-3, 2e-3, work=FLOPS), ["2 ms", "1 - 2", "30", "0.5 TFLOPS", ""]),
        (of_ranks(1 << 30, 1 << 31, unit="bytes"), ["1 GiB", "1 - 2", "30"]),
        (of_ranks(0.5, 0.75, unit="share"), ["50.0%", "50.0% - 75.0%", "30"]),
        (of_ranks(1e-3, 4e-3, 1e-3, 1e-3, work={"bus_bytes": 10**6}), ["4 ms", "1 - 4", "30", "", "0.25 GB/s", ""]),
        (
            of_ranks(1e-3, work={"bytes": 2 * 10**6, "bus_bytes": 10**6}),
            ["1 ms", "", "30", "2 GB/s", "1 GB/s", ""],
        ),
    ],
    ids=["median", "slower of two", "less memory of two", "lower of two shares", "slowest of a transfer", "both rates"],
)
def test_ranks_that_measured_the_same_are_one_line(rows, shown):
    table, *_ = measured_tables(run_of(*rows), "en")
    assert isinstance(table, Table) and len(table.rows) == 1
    assert cells(table)[-len(shown) :] == shown


def test_only_a_slow_rank_is_named():
    _, slow = measured_tables(run_of(*of_ranks(*[1e-3] * 5, 1.2e-3, 1e-3)), "en")
    assert isinstance(slow, Bullets) and "rank 5" in slow.items[0].text
    assert slow.items[0].text.endswith("1.2 ms, the median device 1 ms")
    assert len(list(measured_tables(run_of(*of_ranks(*[1e-3] * 8)), "en"))) == 1


def test_common_labels_have_heads_in_the_language_of_the_page_and_others_stay():
    rows = [row(labels={"precision": name, "stride": name}) for name in ("fp16", "bf16")]
    heads = [
        [head.title for head in table.heads][:2]
        for lang in ("en", "zh")
        for table in measured_tables(run_of(*rows), lang)
    ]
    assert heads == [["precision", "stride"], ["精度", "stride"]]


def test_both_rates_of_a_transfer_have_their_names():
    (table,) = measured_tables(run_of(row(name="transfer", work={"bus_bytes": 1})), "en")
    assert [head.title for head in table.heads][-3:] == ["algbw", "busbw", "share of rated"]


@pytest.mark.parametrize("blocks", [measured_tables, operator_blocks])
def test_a_device_without_a_value_is_named_though_others_have_one(blocks):
    bad = operator("mm", None, rank=1, status="invalid", problem="the output is wrong")
    *_, missing = blocks(run_of(operator("mm"), bad), "en")
    assert isinstance(missing, Bullets)
    expected = "mm pointwise fp32 eager: 1 of 2 ranks have no value (rank 1): invalid: the output is wrong"
    assert [item.text for item in missing.items] == [expected]


@pytest.mark.parametrize("status", [word for word in get_args(RowStatus) if word != "ok"])
def test_a_row_without_a_value_has_its_own_status_and_problem_with_words_for_them(status):
    (table,) = measured_tables(run_of(row(median=None, status=status, problem="because")), "en")
    assert [line[1] for line in table.rows] == [Empty(status, "because")]
    assert all(meaning(status, lang) != status for lang in ("en", "zh"))


def test_sizes_are_written_in_the_unit_that_they_are_whole_numbers_of():
    rows = [row(labels={"bytes": size}) for size in ("67108864", "4096", "1000", "1610612736")]
    (table,) = measured_tables(run_of(*rows), "en")
    assert [line[0].text for line in table.rows] == ["64 MiB", "4 KiB", "1000 B", "1536 MiB"]


def test_what_costs_most_comes_first_and_long_tables_are_folded_by_group():
    rows = [operator(f"op{index}", 1e-6 * (index + 1), group="ab"[index % 2]) for index in range(12)]
    summary, top, *groups = operator_blocks(run_of(*rows), "en")
    assert [cells(summary, number)[0] for number in range(2)] == ["b", "a"]
    assert [line[0].text for line in top.rows[:2]] == ["op11", "op10"] and len(top.rows) == 10
    assert [table.collapsed for table in groups] == [True, True]


# --- figures --------------------------------------------------------------------------------------------------------

FIGURE = RowFigure("gemm_fp32", {"en": "FP32"}, "gemm", "flops", "TFLOPS")


def figure_run(value, **inputs):
    reference = PublishedResult("cpu", "CPU", 1, 1, "per-row", "torch", "somewhere", {"gemm_fp32": 2.5})
    others = msgspec.structs.replace(reference, device="Other", values={"gemm_fp32": 9.0})
    manifest = minimal_manifest(kind="base", figures=(FIGURE,), references=(reference, others))
    metric = Metric("gemm_fp32", "TFLOPS", "figures", "device", value, inputs=inputs)
    return msgspec.structs.replace(make_run("r"), manifest=manifest, metrics=(metric,), ending=Ending("succeeded"))


def test_a_figure_stands_beside_what_is_rated_and_published_for_such_cards():
    (table,) = figure_table(figure_run(2.0, peak=4e12, share=0.5), "en", published=True)
    name, value, _, *others, _ = cells(table)
    assert (name, value, *others) == ("FP32", "2 TFLOPS", "4 TFLOPS", "50.0%", "2.5 (torch)")
    (table,) = figure_table(figure_run(2.0, peak=4e12, share=0.5), "en")  # the profile is not a published one
    assert cells(table)[5] == ""
    (table,) = figure_table(figure_run(2.0), "en")
    assert table.rows[0][3] == Empty("unknown_peak")


def test_repeats_show_how_they_differ():
    runs = tuple(RecordedRun(figure_run(value), (), "") for value in (2.0, 2.2, 2.1))
    blocks = list(figures(PageRuns(runs, runs[0].run.manifest, "en")))
    assert cells(blocks[-1]) == ["FP32", "3", "2.1 TFLOPS", "2 - 2.2"]


def test_a_figure_whose_rows_this_run_does_not_have_is_not_shown():
    """One device has no figures of several, and whoever names one precision does not ask for the others."""
    missing = Metric(
        "gemm_fp32", "TFLOPS", "figures", "device", None, "not_measured",
        message=message("figure.no_row", row="gemm", labels="devices=all"),
    )  # fmt: skip
    run = msgspec.structs.replace(figure_run(2.0), metrics=(missing,))
    assert list(figure_table(run, "en")) == []
    failed = msgspec.structs.replace(missing, message=message("figure.problem", status="error", why="it broke"))
    (table,) = figure_table(msgspec.structs.replace(run, metrics=(failed,)), "en")
    assert isinstance(table.rows[0][1], Empty)


# --- published values of single rows --------------------------------------------------------------------------------

PUBLISHED = PublishedRows(
    "acme", "A1", "operators", "operation/benchmarks/{operator}/README.md", {"dtype": "fp32"}, ("operator",),
    (("abs", 3e-3), ("mm", 5e-3)),
)  # fmt: skip


def published_run(*tables, **job):
    manifest = minimal_manifest(kind="operators", published_rows=tables)
    rows = (operator("abs"), operator("neg"))
    return msgspec.structs.replace(make_run("r"), rows=rows, job=minimal_job(**job), manifest=manifest)


def test_an_operator_stands_beside_what_was_published_of_it():
    _, table = operator_blocks(published_run(PUBLISHED), "en", published=True)
    shown = {line[0].text: line[-1] for line in table.rows}
    assert table.heads[-1].title == "published"
    assert isinstance(shown["abs"], Link) and shown["abs"].text == "3 ms (A1)"
    assert shown["abs"].url.endswith("/operation/benchmarks/abs/README.md")
    assert shown["neg"] == Text("")


def test_what_was_published_of_such_a_card_goes_before_that_of_others_and_other_labels_are_another_problem():
    own = msgspec.structs.replace(PUBLISHED, vendor="cpu", device="CPU", values=(("abs", 7e-3),))
    _, table = operator_blocks(published_run(PUBLISHED, own), "en", published=True)
    assert {line[0].text: line[-1].text for line in table.rows}["abs"] == "7 ms (CPU)"
    other = msgspec.structs.replace(PUBLISHED, where={"dtype": "fp16"})
    _, table = operator_blocks(published_run(other), "en", published=True)
    assert "published" not in [head.title for head in table.heads]


def test_csv_has_what_was_published_with_its_source():
    text = to_csv([RecordedRun(published_run(PUBLISHED), (), "")])
    first, second = csv.DictReader(io.StringIO(text))
    assert (float(first["published"]), first["published_device"]) == (3e-3, "acme A1")
    assert first["published_source"] == "operation/benchmarks/abs/README.md"
    assert second["published"] == ""


# --- what was measured, and telemetry -------------------------------------------------------------------------------


def page_of(*runs):
    return PageRuns(tuple(RecordedRun(run, (), "") for run in runs), runs[0].manifest, "en")


def base_run(*metrics):
    page = Page(("configuration", "fix_hp", "gemm_fp32"), ("task", "fix_hp", "gemm_fp32"))
    manifest = minimal_manifest(kind="base", figures=(FIGURE,), page=page)
    return msgspec.structs.replace(make_run("r"), manifest=manifest, metrics=metrics, ending=Ending("succeeded"))


def test_the_general_table_gives_values_where_no_other_table_has_them_and_leaves_figures_to_theirs():
    (table,) = general(page_of(base_run()))
    assert [cells(table, number)[:2] for number in range(len(table.rows))] == [["Task", "Demo"], ["Overrides", "/"]]
    run = base_run()
    layout = msgspec.structs.replace(run.manifest.page, rows=(*run.manifest.page.rows, "extra"))
    manifest = msgspec.structs.replace(run.manifest, page=layout)
    (table,) = general(page_of(msgspec.structs.replace(run, manifest=manifest)))
    assert [line[0].text for line in table.rows] == ["Task", "Other changes"]


def test_telemetry_lists_what_pages_have_and_what_else_was_read():
    power = Metric("power_mean", "W", "power", "device", 312.4)
    energy = Metric("energy", "J", "power", "system", 5e3)
    (table,) = telemetry(page_of(base_run(power, energy)))
    shown = {line[0].text: line[1] for line in table.rows}
    assert shown["Mean power"].text == "312.4" and shown["Mean power"].unit == "W"
    assert isinstance(shown["Highest temperature"], Empty)
    assert shown["Energy"].unit == "kJ" and "Throttled" not in shown


# --- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (1.1, 1.2, 1e-6, "faster"),
        (0.8, 0.9, 1e-6, "slower"),
        (0.995, 1.005, 0.4, "same"),
        (0.9, 1.2, 0.4, "undecided"),
        (1.001, 1.2, 1e-6, "undecided"),
    ],
)
def test_a_verdict_needs_a_margin(low, high, p, verdict):
    speedup = Speedup((low + high) / 2, {"library": "eager"}, low, high, p)
    blocks = list(operator_blocks(run_of(operator("mm"), operator("mm", library="gems", speedup=speedup)), "en"))
    assert [cells(blocks[1], number)[-1] for number in range(2)].count(verdict) == 1


@pytest.mark.parametrize(
    ("blocks", "said"),
    [(4, "blocks that count: 4, an interval needs 10"), (12, "the blocks drift, so there is no interval")],
)
def test_a_ratio_without_an_interval_says_why_it_has_no_verdict(blocks, said):
    speedup = Speedup(1.7, {"library": "eager"}, blocks=blocks)
    found = list(operator_blocks(run_of(operator("mm", library="gems", speedup=speedup)), "en"))
    assert cells(found[1])[-2:] == ["1.7x", f"no verdict: {said}"]
    assert cells(found[0])[-1] == "1 without a verdict"


def test_one_of_a_hundred_equal_rows_is_not_a_finding():
    """A probability of 0.01 alone would be one."""
    lucky = Speedup(1.05, {"library": "eager"}, 1.02, 1.08, 0.01)
    others = [operator(f"op{index}", library="gems", speedup=Speedup(1.0, {}, 0.9, 1.1, 0.5)) for index in range(99)]
    first = operator("mm", 1.0, library="gems", speedup=lucky)
    for rows, verdict in (([first, *others], "undecided"), ([first], "faster")):
        _, top, *_ = operator_blocks(run_of(*rows), "en")
        assert cells(top)[-1] == verdict


# --- CSV ------------------------------------------------------------------------------------------------------------


def test_csv_has_every_row_unrounded_and_no_formula():
    rows = [row(median=1 / 3e3, work={"bytes": 10}), row(median=None, status="error", problem="=HYPERLINK(1)")]
    lines = list(csv.DictReader(io.StringIO(to_csv([RecordedRun(run_of(*rows), (), "")]))))
    assert float(lines[0]["median"]) == 1 / 3e3 and float(lines[0]["bytes_per_second"]) == pytest.approx(30_000)
    assert (lines[1]["median"], lines[1]["status"], lines[1]["problem"]) == ("", "error", "'=HYPERLINK(1)")


def test_csv_of_runs_without_rows_is_refused():
    with pytest.raises(BadInput, match="no run has any"):
        to_csv([RecordedRun(run_of(), (), "")])


# --- charts ---------------------------------------------------------------------------------------------------------


def test_sizes_are_a_sweep():
    rows = [row(labels={"pattern": "copy", "bytes": str(size)}, work={"bytes": size}) for size in (1000, 2000)]
    (chart,) = row_charts(run_of(*rows), "en")
    assert isinstance(chart, Chart) and chart.log_x
    assert chart.series[0].name == "copy" and chart.series[0].points == ((1000.0, 1e-3), (2000.0, 2e-3))


def test_pairs_are_a_matrix_of_the_largest_size():
    rows = [
        row(labels={"from": source, "to": target, "bytes": str(size)}, work={"bytes": size * 10**6})
        for source, target, size in (("0", "1", 1000), ("0", "1", 2000), ("1", "0", 3000))
    ]
    (matrix,) = row_charts(run_of(*rows), "en")
    assert isinstance(matrix, HeatMap)
    assert (matrix.rows, matrix.columns, matrix.values) == (("0", "1"), ("0", "1"), ((None, 2000.0), (3000.0, None)))


def test_the_roofline_has_the_roof_of_the_card():
    peaks = tuple(Peak("m", name, value, "s", "high") for name, value in (("fp16", 1e13), ("memory_bandwidth", 1e12)))
    limits = {"flops": "fp16", "bytes": "memory_bandwidth"}
    (chart,) = row_charts(run_of(row(work={"flops": 4 * 10**9, "bytes": 10**9}, limits=limits), peaks=peaks), "en")
    points, roof = chart.series
    assert (chart.title, points.points, roof.points) == ("Roofline", ((4.0, 4.0),), ((4.0, 4.0), (10.0, 10.0)))


@pytest.mark.parametrize(("lang", "title"), [("en", "Rate over intensity"), ("zh", "速率与计算强度")])
def test_without_a_peak_it_is_no_roofline_and_every_point_is_named(lang, title):
    more = {"work": {"flops": 4 * 10**9, "bytes": 10**9}, "limits": {"flops": "fp32"}}
    rows = [operator("mm", library=name, **more) for name in ("eager", "compile")]
    chart = next(block for block in row_charts(run_of(*rows), lang) if isinstance(block, Chart))
    (points,) = chart.series
    assert (chart.title, points.names) == (title, ("mm eager", "mm compile")), "what tells them apart"
