"""Markdown as it is published: line ends, colons, glued lines, and what is no page."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_builders import CLEAN_ROW, result_text, table

from flagperf.errors import BadInput
from flagperf_publish.published.page_source import (
    MAX_CELLS,
    Configuration,
    configuration,
    memory,
    parse_page,
    quantity,
    read_page,
    settings,
)
from flagperf_publish.published.result_pages import result_page


def test_both_colons_and_line_ends_are_the_same():
    text = "- 机器型号：A\n- CPU型号: B\n- 空:\n  - 下级: C\n"
    for ending in ("\n", "\r\n"):
        facts = parse_page(text.replace("\n", ending)).facts
        assert [(fact.key, fact.value, fact.line) for fact in facts] == [
            ("机器型号", "A", 1), ("CPU型号", "B", 2), ("空", "", 3), ("下级", "C", 4),
        ]  # fmt: skip
        assert [fact.has_children for fact in facts] == [False, False, True, False]


def test_a_table_has_the_lines_of_its_rows_and_a_glued_sentence_is_known():
    page = parse_page("text\n\n| **a** | \\*b |\n| --- | :-: |\n| 1 | x \\| y |\nnot a row\n\nafter\n")
    (found,) = page.tables
    assert found.heads == ("a", "*b")
    assert found.line == 3
    assert [(row.cells, row.line, row.is_glued) for row in found.rows] == [
        (("1", "x | y"), 5, False),
        (("not a row",), 6, True),
    ]


def test_code_and_comments_are_no_tables():
    inner = table(("配置", "acc"), ("A100单机8卡（1x8）", "1"))
    assert parse_page(f"```\n{inner}```\n").tables == ()
    assert parse_page(f"<!--\n{inner}-->\n").tables == ()
    assert len(parse_page(f"<!-- a -->\n\n{inner}").tables) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A100单机8卡（1x8）", Configuration("A100", 1, 8, 1, 8)),
        ("A100两机8卡（2x8）", Configuration("A100", 2, 8, 2, 8)),
        ("R300十机80卡(10x8)", Configuration("R300", 10, 8, 10, 80)),
        ("C500 12机 （12×8）", Configuration("C500", 12, 8, 12, None)),
        ("A100单机单卡（1x1）", Configuration("A100", 1, 1, 1, 1)),
        ("C500, 2 nodes, 16 devices (2x8)", Configuration("C500", 2, 8, 2, 16)),
        ("A100单机8卡", None),
    ],
)
def test_configurations(text, expected):
    assert configuration(text) == expected


def test_cells_are_numbers_with_units_or_nothing():
    found = quantity("1.8TB/s")
    assert found is not None
    assert (found.amount, found.kind) == (1.8e12, "B/s")
    shares = [quantity(text) for text in ("36.1%", "0.035", "1,234.5")]
    assert [each.amount for each in shares if each] == [pytest.approx(0.361), 0.035, 1234.5]
    assert [quantity(text) for text in ("14.59.0W", "doing*", "", "1 potato", "1" * 60)] == [None] * 5
    assert [each.value for each in memory("13.9 /40.0") or ()] == [13.9, 40.0]
    assert [memory(text) for text in ("13.9", "13.9/", "a/b", "13.9GB/40GB")] == [None] * 4


def test_a_printed_number_is_rounded_or_cut():
    printed = quantity("27.2%")
    assert printed is not None
    assert printed.is_printed_of(27.26)
    assert printed.is_printed_of(27.15)
    assert not printed.is_printed_of(27.31)
    assert not printed.is_printed_of(27.14)


def test_pairs_of_overrides():
    assert list(settings("bs=16, lr=1e-05")) == [("bs", "16"), ("lr", "1e-05")]
    assert list(settings("GAS=1024(GBS=1024=4M tokens)，数据精度=fp16")) == [("GAS", "1024"), ("数据精度", "fp16")]
    assert list(settings("/")) == []


def test_a_page_of_results_has_typed_rows():
    page = result_page(parse_page(result_text(CLEAN_ROW)))
    assert page is not None
    (row,) = page.table.rows
    assert row.amount("p_core") == 1942.6
    assert row.said_precision == "tf32"
    assert row.text("fix_hp") == ""
    stated = page.stated("model")
    assert stated is not None
    assert stated.value == "distilbert"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x7fELF\0\0", "binary content"),
        ("| 配置 |".encode("gb18030"), "not a page in UTF-8"),
        (b"#" * (5 << 20), "more than the limit"),
    ],
)
def test_what_is_not_text_is_refused(content, why, tmp_path: Path):
    path = tmp_path / "page.md"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=why):
        read_page(path)
    path.write_bytes(b"\xef\xbb\xbf" + "# 标题\n".encode())
    assert read_page(path).headings[0].text == "标题", "a byte order mark is left out"


def test_a_table_without_end_is_refused():
    rows = "| 1 | 2 |\n" * (MAX_CELLS // 2 + 1)
    with pytest.raises(BadInput, match="more than 20,000 cells"):
        parse_page(f"| a | b |\n|---|---|\n{rows}", "huge.md")


@pytest.mark.parametrize(
    "line",
    ["(" * 500_000, "- " + " " * 500_000, "# " + " #" * 250_000, "|" + " " * 500_000 + "-|", "-" * 500_000 + "|"],
)
def test_long_lines_are_read_in_no_time(line):
    """Not a time but an end: expressions that try every way would not come back."""
    parse_page(f"| a | b |\n{line}\n| a | b |\n|---|---|\n| {line} | 1 |\n")
