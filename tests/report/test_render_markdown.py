"""Documents as Markdown, made of blocks alone: no run and no metric is needed."""

import pytest
from markdown_it import MarkdownIt
from report_reading import footnotes, tables, value

from flagperf.report import document as doc
from flagperf_publish.render.markdown import to_markdown


def written(*blocks, lang="en") -> str:
    return to_markdown(doc.Document(lang, blocks))


def one_row(*cells, **fields) -> str:
    return written(doc.Table(tuple(doc.Head(f"c{number}") for number, _ in enumerate(cells)), (cells,), **fields))


def test_cells_read_back_as_they_were():
    cells = (
        doc.Value("12.3"),
        doc.Value("12.3", marks=("low_peak",)),
        doc.Value("12.3", marks=("low_peak", "busy_host")),
        doc.Empty("unknown_peak", "no such card"),
        doc.Text("/"),
        doc.Text("bold", strong=True),
        doc.Status("failed", False),
        doc.Text("a|b [^1] *c*"),
    )
    text = one_row(*cells)
    (_, row), found = tables(text)[0], footnotes(text)
    values = ["12.3", "12.3", "12.3", "/", "/", "bold", "failed", r"a\|b \[^1\] \*c\*"]
    assert [value(cell)[0] for cell in row] == values
    assert [value(cell)[1] for cell in row] == [[], [1], [1, 2], [3], [], [], [], []]
    assert found[1].startswith("low_peak (") and found[2].startswith("busy_host (")
    assert found[3].startswith("unknown_peak (") and found[3].endswith(": no such card")


def test_one_footnote_serves_all_cells_with_the_same_reason():
    text = one_row(doc.Empty("run_failed", "x"), doc.Empty("run_failed", "x"), doc.Empty("run_failed", "y"))
    assert [value(cell)[1] for cell in tables(text)[0][1]] == [[1], [1], [2]]
    assert text.count("\n[^1]: ") == 1


def test_tables_are_padded_by_the_width_of_their_characters():
    rows = ((doc.Text("C500单机"), doc.Value("1")), (doc.Text("x"), doc.Value("22")))
    assert written(doc.Table((doc.Head("配置"), doc.Head("b", headline=True)), rows)).splitlines() == [
        "| 配置     | \\*b |",
        "| -------- | --- |",
        "| C500单机 | 1   |",
        "| x        | 22  |",
    ]


def test_a_collapsed_table_stands_in_details_behind_its_title():
    text = one_row(doc.Value("1"), title="All <of> them", collapsed=True, remark="why")
    assert text == (
        "<details>\n<summary>All &lt;of&gt; them (1)</summary>\n\n| c0  |\n| --- |\n| 1   |\n\nwhy\n\n</details>\n"
    )
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.index("<details>") < html.index("<table>") < html.index("</details>")


@pytest.mark.parametrize(
    ("cell", "markdown", "definition"),
    [
        (doc.Link("a/b.md", "https://example.org/a/b.md"), "[a/b.md]", "[a/b.md]: <https://example.org/a/b.md>"),
        (doc.Link("a](x) | b", "https://example.org/a"), r"[a\](x) \| b](<https://example.org/a>)", ""),
        (doc.Link("https://example.org/a_b_c", "https://example.org/a_b_c"), "<https://example.org/a_b_c>", ""),
        (doc.Link("x", "javascript:alert(1)"), "x", ""),
        (doc.Link("x", "https://example.org/> <script>"), "x", ""),
    ],
)
def test_links_have_their_addresses_below_all_blocks(cell, markdown, definition):
    text = one_row(cell)
    assert tables(text)[0][1] == [markdown]
    assert text.endswith(f"\n\n{definition}\n" if definition else "|\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    links = [child.attrs["href"] for child in inline if child.type == "link_open"]
    assert links == ([] if markdown == "x" else [cell.url])


def test_two_links_of_one_text_keep_their_addresses():
    text = one_row(*(doc.Link("x", f"https://example.org/{name}") for name in "aba"))
    assert tables(text)[0][1] == ["[x]", "[x](<https://example.org/b>)", "[x]"]
    assert text.count("[x]: ") == 1


def test_one_long_cell_does_not_make_its_table_as_wide():
    rows = ((doc.Text("x" * 61), doc.Text("y")), (doc.Text("short"), doc.Text("z")))
    assert "\n| short | z   |" in written(doc.Table((doc.Head("a"), doc.Head("b")), rows))


def test_items_stand_inside_the_bullet_of_their_title():
    text = written(doc.Bullets((doc.Text("one"), doc.Text("two")), "Sizes", numbered=True))
    assert text == "* Sizes\n  1. one\n  2. two\n"
    html = MarkdownIt("commonmark").render(text)
    assert html.index("<ul>") < html.index("<ol>") < html.index("</ol>") < html.index("</ul>")


def test_facts_are_a_list_under_their_title():
    docker = doc.LabelledCell("Docker", doc.Empty("not_measured", "none"))
    facts = (doc.LabelledCell("OS", doc.Text("Linux")), docker, doc.LabelledCell("a", doc.Value("1", "s"), "b"))
    text = written(doc.Facts(facts, "Software"), lang="zh")
    assert text.startswith("- ##### Software\n  - OS：Linux\n  - Docker：/[^1]\n  - a：1 s（b）\n")


def test_notes_are_grouped_by_subject():
    assert written(doc.Notes((doc.NoteGroup("Memory", ("a", "b")), doc.NoteGroup("Data", ("c",))), "Notes")) == (
        "### Notes\n\n- Memory\n  - a\n  - b\n- Data\n  - c\n"
    )


def test_code_stays_as_it_is_and_cannot_end_its_fence():
    text = written(doc.Code("├── a\n│   └── ```\x1b"))
    assert text == "````text\n├── a\n│   └── ```\n````\n"


@pytest.mark.parametrize("start", ["# x", "- x", "+ x", "1. x", "2) x", "> x", "---", "==="])
def test_the_first_letters_of_a_text_begin_no_other_block(start):
    notes = doc.Notes((doc.NoteGroup("g", (start,)),), "n")
    for block in (doc.Paragraph(start), doc.Bullets((doc.Text(start),)), notes):
        tokens = MarkdownIt("commonmark").parse(written(block))
        *_, inline = [token for token in tokens if token.type == "inline"]
        assert "".join(child.content for child in inline.children) == start


@pytest.mark.parametrize("text", ["1.5 GiB", "#5", "-1", "+3"])
def test_what_begins_no_block_is_not_escaped(text):
    assert written(doc.Paragraph(text)) == f"{text}\n"


def test_headings_and_charts():
    chart = doc.Chart("Loss", "step", "loss", (doc.ChartSeries("a", ((1.0, 2.0),)),))
    assert written(doc.Heading("A *b*", 4), chart) == "#### A \\*b\\*\n"
