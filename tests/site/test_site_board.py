"""Rows are coded by column, and nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from site_building import installed

from flagperf_publish.site.board import BoardFigure, BoardRow, CodedColumn, board, column


def row(name: str, **changes: Any) -> BoardRow:
    plain = {"vendor": "acme", "card": "A1", "shape": "1x8", "precision": "fp32", "profile": "standard"}
    return BoardRow(name=name, case="distilbert", status="succeeded", grade="recomputable", **{**plain, **changes})


def decoded(coded: CodedColumn, size: int) -> list[Any]:
    return [coded.of[at] for at in coded.at or [0] * size]


def test_a_column_is_its_different_values_and_their_places() -> None:
    assert column(["b", "a", "b", None]) == CodedColumn(["b", "a", None], [0, 1, 0, 2])


def test_a_value_that_all_rows_have_is_written_once() -> None:
    assert msgspec.json.encode(column(["tiny"] * 1000)) == b'{"of":["tiny"]}'


@given(st.lists(st.one_of(st.none(), st.text(), st.integers()), min_size=1))
def test_every_column_can_be_read_back(values: list[Any]) -> None:
    assert decoded(column(values), len(values)) == values


def test_rows_are_by_case_and_names_have_columns_of_their_own() -> None:
    rows = [
        row("b", figures={"p_core": BoardFigure("2.0", 2.0)}, setup={"hardware/host": "one"}),
        row("a", figures={"acc": BoardFigure("0.9", 0.9), "mfu": BoardFigure("", reason="unknown_peak")}),
        msgspec.structs.replace(row("c"), case="aquila_33b"),
    ]
    inference, training = board(rows, installed(), "en")
    assert (inference.name, training.name, training.size) == ("aquila_33b", "distilbert", 2)
    assert decoded(training.plain["name"], 2) == ["b", "a"]
    assert decoded(training.figures["p_core"], 2) == [BoardFigure("2.0", 2.0), None]
    assert decoded(training.setup["hardware/host"], 2) == ["one", None]


def test_metrics_that_no_row_has_a_value_of_have_no_column_on_the_board() -> None:
    figures = {
        "acc": BoardFigure("0.9", 0.9),
        "p_core": BoardFigure("2.0", 2.0),
        "mfu": BoardFigure("", reason="unknown_peak"),
    }
    (case,) = board([row("a", figures=figures)], installed(), "en")
    assert [metric.name for metric in case.metrics] == ["p_core", "acc"]
    assert case.metrics[0].is_headline and case.metrics[0].better == 1 and case.metrics[0].unit == "samples/s"
    assert case.metrics[1].better == 0


def test_a_metric_of_another_version_of_the_case_is_shown_by_its_name() -> None:
    (case,) = board([row("a", figures={"gone": BoardFigure("1", 1.0)})], installed(), "zh")
    assert [(metric.name, metric.title, metric.unit) for metric in case.metrics] == [("gone", "gone", "")]


def test_titles_are_in_the_language_of_the_site() -> None:
    rows = [row("a", figures={"e2e_time": BoardFigure("1.0", 1.0)})]
    titles = {lang: board(rows, installed(), lang)[0].title for lang in ("en", "zh")}  # type: ignore[arg-type]
    assert titles == {"en": "DistilBERT, sentence classification", "zh": "DistilBERT 句子分类"}
