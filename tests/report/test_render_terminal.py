"""Documents on a terminal, made of blocks alone: what fits, what is folded, what is turned, and colors."""

import re

import pytest

from flagperf.report import document as doc
from flagperf.report.terminal import display_width, fold, to_terminal

LOREM = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def written(*blocks, width=80, color=False) -> list[str]:
    return to_terminal(doc.Document("en", blocks), width=width, color=color).splitlines()


def table(rows, num_columns, **fields) -> doc.Table:
    return doc.Table(tuple(doc.Head(f"column_{number}") for number in range(num_columns)), tuple(rows), **fields)


def test_columns_are_aligned_by_the_width_of_their_characters():
    shown = doc.Table(
        (doc.Head("列"), doc.Head("b", headline=True)),
        ((doc.Text("内存不足"), doc.Text("x")), (doc.Text("ab"), doc.Text("y"))),
    )
    assert written(shown) == ["列        *b", "内存不足  x", "ab        y"]


def test_a_table_that_fits_has_full_texts_and_one_that_is_too_wide_takes_short_forms_first():
    cells = (doc.Text("20250102T030405Z-long-name", "20250102T030405Z"), doc.Value("1.0"), doc.Text("a" * 10))
    assert written(table([cells], 3)) == [
        "column_0                    column_1  column_2",
        "20250102T030405Z-long-name  1.0       aaaaaaaaaa",
    ]
    assert written(table([cells], 3), width=45) == [
        "column_0          column_1  column_2",
        "20250102T030405Z  1.0       aaaaaaaaaa",
    ]


def test_cells_fold_between_words():
    lines = written(table([(doc.Text(LOREM), doc.Value("1.0"))], 2), width=60)
    assert max(map(len, lines)) <= 60
    assert lines[1].endswith("  1.0")
    assert " ".join(line[:48].strip() for line in lines[1:]) == LOREM


def test_a_table_with_too_many_columns_stands_its_rows_side_by_side():
    rows = [tuple(doc.Value(f"{row}.{column}") for column in range(12)) for row in range(3)]
    lines = written(table(rows, 12), width=50)
    assert lines[0].split() == ["column_0", "0.0", "1.0", "2.0"]
    assert lines[11].split() == ["column_11", "0.11", "1.11", "2.11"]
    assert len(lines) == 12


def test_rows_that_do_not_fit_beside_each_other_follow_below():
    rows = [tuple(doc.Text(f"word_of_twenty_{row}_{column}") for column in range(4)) for row in range(3)]
    lines = written(table(rows, 4), width=60)
    assert [bool(line) for line in lines] == [True] * 4 + [False] + [True] * 4
    assert max(map(len, lines)) <= 60
    assert {word for line in lines for word in line.split() if "word" in word} == {
        cell.text for row in rows for cell in row
    }


PATH = "/a/path/that/is/longer/than/any/terminal/is/wide/" * 3


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize(
    ("block", "words"),
    [
        (doc.Heading(LOREM), LOREM),
        (doc.Paragraph(f"bundle: {PATH}"), PATH),
        (doc.Facts((doc.LabelledCell("path", doc.Text(PATH), LOREM),)), f"{LOREM} {PATH}"),
        (doc.Bullets((doc.Text(LOREM), doc.Link(PATH, PATH)), numbered=True), f"{LOREM} {PATH}"),
        (doc.Notes((doc.NoteGroup("subject", (LOREM, PATH)),), "Notes"), f"{LOREM} {PATH}"),
        (table([(doc.Text(LOREM), doc.Text(PATH), doc.Empty("not_run"))], 3, remark=LOREM), f"{LOREM} {PATH}"),
    ],
    ids=["heading", "paragraph", "facts", "bullets", "notes", "table"],
)
def test_no_word_is_ever_cut(block, words, width):
    lines = written(block, width=width)
    assert set(words.split()) <= {word for line in lines for word in line.split()}
    assert all(len(line) <= width or PATH in line for line in lines)


def test_facts_say_units_reasons_and_what_marks_mean_once():
    marked, missing = doc.Value("13.1", "samples/s", ("busy_host",)), doc.Empty("unknown_peak", "no card")
    cells = (("a", marked, "why"), ("b", marked), ("MFU", missing))
    lines = written(doc.Facts(tuple(doc.LabelledCell(*each) for each in cells), "Title"), width=200)
    assert lines[:3] == ["Title", "a          13.1 samples/s  why; busy_host", "b          13.1 samples/s  busy_host"]
    assert lines[3].startswith("MFU        n/a             unknown_peak (") and lines[3].endswith(": no card")
    assert lines[4].startswith("busy_host                  other processes used")
    assert len(lines) == 5


def test_status_is_green_or_red_and_titles_are_bold():
    rows = [(doc.Status("succeeded", True), doc.Text("x")), (doc.Status("failed", False), doc.Text("y", strong=True))]
    colored, plain = (written(table(rows, 2, title="T"), color=color) for color in (True, False))
    assert colored[0] == "\x1b[1mT\x1b[0m"
    assert colored[2] == "\x1b[32msucceeded\x1b[0m  x"
    assert colored[3] == "\x1b[31mfailed\x1b[0m     \x1b[1my\x1b[0m"
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in colored] == plain


def test_foreign_text_cannot_steer_the_terminal():
    words = "bad\x1b]0;title\x07\r\n[red]"
    blocks = (
        doc.Heading(words),
        doc.Paragraph(words),
        doc.Facts((doc.LabelledCell(words, doc.Text(words), words),), words),
        doc.Bullets((doc.Text(words),), words),
        table([(doc.Text(words), doc.Status(words, True))], 2, title=words, remark=words),
        doc.Code(words),
        doc.Notes((doc.NoteGroup(words, (words,)),), words),
    )
    text = to_terminal(doc.Document("en", blocks), width=80)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text
    assert "bad]0;title [red]" in text


def test_blocks_stand_apart_and_headings_above_what_they_head():
    chart = doc.Chart("Loss", "step", "loss", (doc.ChartSeries("a", ((1.0, 2.0),)),))
    assert written(doc.Heading("A"), doc.Paragraph("b"), chart, table([], 1), doc.Code("c")) == ["A", "b", "", "  c"]
    assert written() == []


def test_chinese_is_folded_between_its_characters():
    text = "该卡在此精度下没有可信的峰值 peak"
    assert all(display_width(line) <= 10 for line in fold(text, 10))
    assert "".join(fold(text, 10)).replace(" ", "") == text.replace(" ", "")
