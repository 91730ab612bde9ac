"""What a comparison looks like."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import msgspec
import pytest
from report_builders import MANIFEST, changed, metrics, node, recorded
from side_builders import runs, side, with_rows, with_run

from flagperf.bundle.run_record import Ending
from flagperf.compare.comparison import Comparison, compare, parse_limit
from flagperf.compare.sides import Side
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Bullets, Facts, Heading, Headline, Intervals, Table
from flagperf.report.screens import comparison_report
from flagperf.report.terminal import to_terminal
from flagperf.spec.node_facts import Fact
from flagperf.units import GIB
from flagperf_publish.export.data_files import comparison_to_csv, comparison_to_json
from flagperf_publish.pages.comparison_page import comparison_web_page
from flagperf_publish.pages.layouts import to_html
from flagperf_publish.render.markdown import to_markdown

SLOW, FAST = [100.0, 101.0, 99.0], [120.0, 121.0, 119.5]


@pytest.fixture
def found() -> Comparison:
    other = [changed(each, nodes=(node(os=Fact("Debian <script>")),)) for each in runs("two", FAST)]
    left_out = (changed(runs("three", [1.0])[0].run, ending=Ending("out_of_memory", "rank 3: no")),)
    return compare([side("A", runs("one", SLOW)), side("B", other, left_out=left_out)])


def text(found: Comparison, width: int = 160) -> str:
    return to_terminal(comparison_report(found), width=width)


def test_the_terminal_shows_sides_differences_ratio_and_verdict(found: Comparison) -> None:
    shown = text(found)
    assert "A  side-A  baseline; 3 runs; metax C500, 1x8, fp32, profile standard" in shown
    assert "left out: 20250102T030400Z-distilbert-three (out_of_memory: rank 3: no)" in shown
    assert shown.index("Debian") < shown.index("p_core")
    line = next(line for line in shown.splitlines() if line.startswith("p_core"))
    assert line.split("  ")[-1] == "faster" and "1.202 (" in line


def test_an_mfu_of_measured_peaks_is_named_so_where_both_sides_have_one() -> None:
    figures = metrics()
    marked = {**figures, "mfu": changed(figures["mfu"], marks=("measured_peak",))}
    own, other, again = (recorded(figures=each) for each in (figures, marked, marked))
    again = changed(again, run=changed(again.run, id="again"))
    assert "MFU (measured peak)  " in text(compare([side("A", [other]), side("B", [again])]))
    shown = text(compare([side("A", [own]), side("B", [again])]))
    assert "MFU (measured peak)  " not in shown
    assert "(measured_peak)" in shown


def test_what_is_incomparable_is_said_before_any_number() -> None:
    other = runs("two", FAST, profile="tiny")
    document = comparison_report(compare([side("A", runs("one", SLOW)), side("B", other)]))
    kinds = [type(block) for block in document.blocks]
    assert kinds[0] is Heading
    assert kinds.index(Bullets) < kinds.index(Table)
    shown = to_terminal(document, width=160)
    assert shown.index("profile is standard in A, tiny in B") < shown.index("p_core")
    assert "faster" not in shown


def test_a_page_with_charts_has_what_differs_above_the_card(found: Comparison) -> None:
    kinds = [type(block) for block in comparison_web_page(found).blocks]
    assert kinds[:3] == [Headline, Facts, Heading], "the title and the sides"
    assert kinds.index(Table) < kinds.index(Headline, 1) < kinds.index(Intervals)
    page = to_html(comparison_web_page(found))
    assert page.index("Debian") < page.index("1.202") and page.count("<h1>") == 1


def test_sides_that_are_not_comparable_have_no_card(found: Comparison) -> None:
    other = side("C", runs("four", FAST, profile="tiny"))
    alone, both = (compare([found.sides[0], *sides]) for sides in ([other], [found.sides[1], other]))
    (head,) = [block for block in comparison_web_page(alone).blocks if isinstance(block, Headline)]
    assert "profile is standard in A, tiny in C" in head.cautions[0] and not head.figures
    _, card = [block for block in comparison_web_page(both).blocks if isinstance(block, Headline)]
    assert card.figures and all(figure.label.endswith(", B / A") for figure in card.figures)


@pytest.mark.parametrize(("lang", "title"), [("en", "What differs: environment"), ("zh", "不同之处：环境")])
def test_titles_name_the_subjects_that_differ(found: Comparison, lang: Any, title: str) -> None:
    bare = title.partition(": " if lang == "en" else "：")[2]
    for document, wanted in (
        (comparison_report(found, lang), title),
        (comparison_web_page(found, lang), bare.capitalize()),
    ):
        (table,) = [block for block in document.blocks if isinstance(block, Table) and "Debian" in str(block.rows)]
        assert table.title == wanted


def p_core_of(one: list[float], other: list[float]) -> str:
    shown = text(compare([side("A", runs("one", one)), side("B", runs("two", other))]))
    return next(line for line in shown.splitlines() if line.startswith("p_core"))


def test_undecided_says_how_many_runs_would_decide() -> None:
    line = p_core_of([100.0, 104.0], [103.0, 107.0])
    assert "undecided: needs" in line and "runs of each" in line and "more" in line


def test_a_setup_that_drifts_by_more_than_it_differs_is_told_so() -> None:
    line = p_core_of([100.0, 101.0, 200.0, 201.0], [185.0, 186.0, 184.0, 187.0])
    assert "undecided: repeats of one and the same are 99.5% apart" in line


@pytest.mark.parametrize(("lang", "word"), [("en", "faster"), ("zh", "更快")])
def test_a_page_in_both_languages(found: Comparison, lang: str, word: str) -> None:
    page = to_markdown(comparison_report(found, lang))  # type: ignore[arg-type]
    row = next(line for line in page.splitlines() if line.startswith("| **p_core**"))
    assert word in row
    assert "Debian \\<script>" in page


def test_json_is_not_rounded(found: Comparison) -> None:
    exported = json.loads(comparison_to_json(found))
    assert exported["schema"] == 1 and exported["baseline"] == "A"
    (core,) = [each for each in exported["metrics"] if each["name"] == "p_core"]
    assert core["sides"]["A"]["values"] == SLOW and core["better"] == "faster"
    contrast = core["against"]["B"]
    assert (contrast["verdict"], contrast["method"], contrast["num_runs"]) == ("faster", "welch", 3)
    assert contrast["low"] < contrast["ratio"] < contrast["high"] and contrast["p"] < 0.05
    assert exported["sides"][1]["left_out"][0]["status"] == "out_of_memory"
    assert {"subject": "environment", "name": "os"}.items() <= exported["differences"][0].items()


def test_csv_has_a_line_for_every_metric_and_row_of_every_side() -> None:
    one, other = (
        side(letter, [with_rows(each, {"=mm": time}) for each in runs(letter, SLOW)])
        for letter, time in (("A", 1.0), ("B", 2.0))
    )
    third = Side("C", "published:x", reference=MANIFEST.references[0], manifest=MANIFEST)
    lines = list(csv.DictReader(io.StringIO(comparison_to_csv(compare([one, other, third])))))
    core = [line for line in lines if line["name"] == "p_core"]
    assert [line["side"] for line in core] == ["side-B", "published:x"]
    (row,) = [line for line in lines if line["what"] == "row" and line["side"] == "side-B"]
    assert (row["label_operator"], row["ratio"], row["verdict"]) == ("'=mm", "2.0", "slower")


def test_limits_are_listed(found: Comparison) -> None:
    limited = compare(found.sides, limits=[parse_limit("p_core > 5%"), parse_limit("acc < -1%")])
    shown = text(limited)
    assert "p_core > 5%, B: broken (by all of the interval)" in shown
    assert "acc < -1%, B: kept" in shown


def test_rows_that_differ_most_are_shown_and_the_others_are_folded() -> None:
    times = {letter: {f"op{n}": 1.0 + n * step for n in range(14)} for letter, step in (("A", 0.0), ("B", 0.1))}
    sides = [side(letter, [with_rows(each, times[letter]) for each in runs(letter, SLOW)]) for letter in times]
    document = comparison_report(compare(sides))
    tables = [block for block in document.blocks if isinstance(block, Table) and "operator" in block.heads[0].title]
    assert [(len(table.rows), table.collapsed) for table in tables] == [(10, False), (4, True)]
    assert "14 rows compared" in tables[0].remark and "Holm" in tables[0].remark


def test_a_row_keeps_its_marks_and_its_size_is_readable() -> None:
    row = MeasuredRow("stream", {"bytes": "1048576"}, "s", num_repeats=3, median=0.1, marks=("unsteady",))
    other = msgspec.structs.replace(row, labels={"bytes": "2097152"}, marks=())
    compared = compare([side(letter, [with_run(*runs(letter, [1.0]), rows=(row, other))]) for letter in "AB"])
    rows = json.loads(comparison_to_json(compared))["rows"]
    assert [each["sides"]["B"]["marks"] for each in rows] == [["unsteady"], []]
    lines = [line for line in csv.DictReader(io.StringIO(comparison_to_csv(compared))) if line["what"] == "row"]
    assert [line["side_marks"] for line in lines] == [line["baseline_marks"] for line in lines] == ["unsteady", ""]
    assert "1 MiB  100 ms (unsteady)  100 ms (unsteady)  1" in text(compared)


def test_memory_has_the_digits_in_which_it_differs() -> None:
    sizes = {"A": 0.38 * GIB, "B": 0.41 * GIB}
    sides = [side(letter, [recorded(letter, figures=metrics(mem_used=size))]) for letter, size in sizes.items()]
    assert "mem_used 0.38 GiB 0.41 GiB 1.079" in " ".join(text(compare(sides)).split())


def test_sides_without_a_common_value_say_so() -> None:
    nothing = [with_run(each, metrics=()) for each in runs("B", [1.0])]
    assert "no metric has a value on both sides" in text(compare([side("A", runs("A", [1.0])), side("B", nothing)]))


def test_three_sides_say_that_verdicts_are_corrected(found: Comparison) -> None:
    shown = text(compare([*found.sides, side("C", runs("four", FAST))]))
    assert "corrected for 2 comparisons" in shown
