"""Documents as Markdown, made of blocks alone: no run and no metric is needed."""

import pytest
from markdown_it import MarkdownIt
from report_parsing import footnotes, tables, value

from flagperf.report.document import (
    Bullets,
    Chart,
    Code,
    Document,
    Empty,
    Fact,
    Facts,
    Head,
    Heading,
    Link,
    NoteGroup,
    Notes,
    Paragraph,
    Series,
    Status,
    Table,
    Text,
    Value,
)
from flagperf.report.render import to_markdown


def written(*blocks, lang="en") -> str:
    return to_markdown(Document(lang, blocks))


def one_row(*cells, **fields) -> str:
    return written(Table(tuple(Head(f"c{number}") for number, _ in enumerate(cells)), (cells,), **fields))


def test_cells_read_back_as_they_were():
    cells = (
        Value("12.3"),
        Value("12.3", marks=("low_peak",)),
        Value("12.3", marks=("low_peak", "busy_host")),
        Empty("unknown_peak", "no such card"),
        Text("/"),
        Text("bold", strong=True),
        Status("failed", False),
        Text("a|b [^1] *c*"),
    )
    text = one_row(*cells)
    (_, row), found = tables(text)[0], footnotes(text)
    values = ["12.3", "12.3", "12.3", "/", "/", "bold", "failed", r"a\|b \[^1\] \*c\*"]
    assert [value(cell)[0] for cell in row] == values
    assert [value(cell)[1] for cell in row] == [[], [1], [1, 2], [3], [], [], [], []]
    assert found[1].startswith("low_peak (") and found[2].startswith("busy_host (")
    assert found[3].startswith("unknown_peak (") and found[3].endswith(": no such card")


def test_one_footnote_serves_all_cells_with_the_same_reason():
    text = one_row(Empty("run_failed", "x"), Empty("run_failed", "x"), Empty("run_failed", "y"))
    assert [value(cell)[1] for cell in tables(text)[0][1]] == [[1], [1], [2]]
    assert text.count("\n[^1]: ") == 1


def test_tables_are_padded_by_the_width_of_their_characters():
    text = written(
        Table((Head("配置"), Head("b", headline=True)), ((Text("C500单机"), Value("1")), (Text("x"), Value("22"))))
    )
    assert text.splitlines() == [
        "| 配置     | \\*b |",
        "| -------- | --- |",
        "| C500单机 | 1   |",
        "| x        | 22  |",
    ]


def test_a_collapsed_table_stands_in_details_behind_its_title():
    text = one_row(Value("1"), title="All <of> them", collapsed=True, remark="why")
    assert text == (
        "<details>\n<summary>All &lt;of&gt; them (1)</summary>\n\n| c0  |\n| --- |\n| 1   |\n\nwhy\n\n</details>\n"
    )
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.index("<details>") < html.index("<table>") < html.index("</details>")


@pytest.mark.parametrize(
    ("cell", "markdown", "definition"),
    [
        (Link("a/b.md", "https://example.org/a/b.md"), "[a/b.md]", "[a/b.md]: <https://example.org/a/b.md>"),
        (Link("a](x) | b", "https://example.org/a"), r"[a\](x) \| b](<https://example.org/a>)", ""),
        (Link("https://example.org/a_b_c", "https://example.org/a_b_c"), "<https://example.org/a_b_c>", ""),
        (Link("x", "javascript:alert(1)"), "x", ""),
        (Link("x", "https://example.org/> <script>"), "x", ""),
    ],
)
def test_links_have_their_addresses_below_all_blocks(cell, markdown, definition):
    text = one_row(cell)
    assert tables(text)[0][1] == [markdown]
    assert text.endswith(f"\n\n{definition}\n" if definition else "|\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    links = [
        child for token in tokens if token.type == "inline" for child in token.children if child.type == "link_open"
    ]
    assert [link.attrs["href"] for link in links] == ([] if markdown == "x" else [cell.url])


def test_two_links_of_one_text_keep_their_addresses():
    text = one_row(
        Link("x", "https://example.org/a"), Link("x", "https://example.org/b"), Link("x", "https://example.org/a")
    )
    assert tables(text)[0][1] == ["[x]", "[x](<https://example.org/b>)", "[x]"]
    assert text.count("[x]: ") == 1


def test_one_long_cell_does_not_make_its_table_as_wide():
    lines = written(
        Table((Head("a"), Head("b")), ((Text("x" * 61), Text("y")), (Text("short"), Text("z"))))
    ).splitlines()
    assert lines[3] == "| short | z   |"


def test_items_stand_inside_the_bullet_of_their_title():
    text = written(Bullets((Text("one"), Text("two")), "Sizes", numbered=True))
    assert text == "* Sizes\n  1. one\n  2. two\n"
    html = MarkdownIt("commonmark").render(text)
    assert html.index("<ul>") < html.index("<ol>") < html.index("</ol>") < html.index("</ul>")


def test_facts_are_a_list_under_their_title():
    facts = Facts(
        (Fact("OS", Text("Linux")), Fact("Docker", Empty("not_measured", "none")), Fact("a", Value("1", "s"), "b")),
        "Software",
    )
    assert written(facts, lang="zh").splitlines()[:4] == [
        "- ##### Software",
        "  - OS：Linux",
        "  - Docker：/[^1]",
        "  - a：1 s（b）",
    ]


def test_notes_are_grouped_by_subject():
    assert written(Notes((NoteGroup("Memory", ("a", "b")), NoteGroup("Data", ("c",))), "Notes")) == (
        "### Notes\n\n- Memory\n  - a\n  - b\n- Data\n  - c\n"
    )


def test_code_stays_as_it_is_and_cannot_end_its_fence():
    text = written(Code("├── a\n│   └── ```\x1b"))
    assert text == "````text\n├── a\n│   └── ```\n````\n"


@pytest.mark.parametrize("start", ["# x", "- x", "+ x", "1. x", "2) x", "> x", "---", "==="])
def test_the_first_letters_of_a_text_begin_no_other_block(start):
    for block in (Paragraph(start), Bullets((Text(start),)), Notes((NoteGroup("g", (start,)),), "n")):
        tokens = MarkdownIt("commonmark").parse(written(block))
        assert [token.content for token in tokens if token.type == "inline"][-1:] != []
        inline = [token for token in tokens if token.type == "inline"][-1]
        assert "".join(child.content for child in inline.children) == start


@pytest.mark.parametrize("text", ["1.5 GiB", "#5", "-1", "+3"])
def test_what_begins_no_block_is_not_escaped(text):
    assert written(Paragraph(text)) == f"{text}\n"


def test_headings_and_charts():
    chart = Chart("Loss", "step", "loss", (Series("a", ((1.0, 2.0),)),))
    assert written(Heading("A *b*", 4), chart) == "#### A \\*b\\*\n"
