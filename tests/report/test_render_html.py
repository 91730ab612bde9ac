"""Documents as HTML, made of blocks alone: no run and no metric is needed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from flagperf.report import document as doc
from flagperf_publish.render.charts import chart_svg, histogram_svg
from flagperf_publish.render.html import to_html

VOID = ("meta", "link", "br", "wbr", "img", "input")


class Tags(HTMLParser):
    """Complains about a tag that is not closed, or closed in the wrong place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def written(*blocks: doc.Block, lang: Any = "en", title: str = "") -> str:
    page = to_html(doc.Document(lang, blocks, title))
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return page


def body(*blocks: doc.Block, **more: Any) -> str:
    return written(*blocks, **more).partition("<main>")[2]


def table(*cells: doc.TableCell, **fields: Any) -> str:
    return body(doc.Table(tuple(doc.Head(f"c{number}") for number, _ in enumerate(cells)), (cells,), **fields))


def one_chart(*points: tuple[float, float], names: tuple[str, ...] = (), **fields: Any) -> doc.Chart:
    series = fields.pop("series", (doc.ChartSeries("a", points or ((0.0, 1.0), (1.0, 2.0)), names=names),))
    return doc.Chart("Title", "x", "y", series, **fields)


# --- the page -------------------------------------------------------------------------------------------------------


def test_a_page_is_complete_and_allows_neither_scripts_nor_requests() -> None:
    page = written(doc.Paragraph("text"), lang="zh", title="a < b")
    assert page.startswith('<!doctype html>\n<html lang="zh-CN">')
    assert "default-src 'none'; script-src 'none'" in page
    assert "<title>a &lt; b</title>" in page
    assert "http" not in page.partition("<main>")[0].replace("http-equiv", "")
    assert "@import" not in page and "url(" not in page


def test_the_title_is_that_of_the_document_else_its_first_heading() -> None:
    assert "<title>given</title>" in written(doc.Heading("first"), title="given")
    assert "<title>first</title>" in written(doc.Heading("first"))


def test_main_headings_begin_sections_that_the_contents_link_to() -> None:
    page = body(doc.Paragraph("head"), doc.Heading("One", 2), doc.Paragraph("a"), doc.Heading("Two", 2))
    assert re.findall(r'<a href="#(part-\d)">(\w+)</a>', page) == [("part-1", "One"), ("part-2", "Two")]
    assert page.count('<section id="part-') == 2


@pytest.mark.parametrize("text", ["<blink>", "a & b", "\"'", "\x1b[31m", "two\nlines", "\u202edrow"])
def test_text_is_shown_as_it_is_in_every_block(text: str) -> None:
    cell = doc.Text(text)
    figure = doc.KeyFigure(text, doc.Value(text, text, (text,)), text, True, text)
    blocks: tuple[doc.Block, ...] = (
        doc.Heading(text, 2),
        doc.Paragraph(text),
        doc.Facts((doc.LabelledCell(text, cell, text), doc.LabelledCell(text, doc.Empty(text, text))), text),
        doc.Bullets((cell, doc.Link(text, text)), text),
        doc.Table(
            (doc.Head(text),), ((cell,), (doc.Value(text, text, (text,)),), (doc.Empty(text, text),)), text, text
        ),
        doc.Code(text),
        doc.Notes((doc.NoteGroup(text, (text,)),), text),
        doc.Headline(text, (doc.LabelledCell(text, cell),), doc.Status(text, False), text, (text,), (figure,)),
        doc.Fold(text, (doc.Paragraph(text),)),
        one_chart(bands=(doc.Band(text, 0.0, 1.0),), remark=text, series=(doc.ChartSeries(text, ((0, 1), (1, 2))),)),
        doc.Histogram(text, text, text, ((0.0, 1.0, 3),), ((text, 0.5),), text),
        doc.Shares(text, (text, text), ((text, (1.0, 2.0)),), ((text, text),), text),
        doc.Bars(text, (doc.Bar(text, 1.0, text, 2.0),), text, text),
        doc.Intervals(text, (doc.RatioInterval(text, 1.0, text, 0.9, 1.1),), text),
        doc.HeatMap(text, text, text, (text,), (text,), ((1.0,),), text),
    )
    page = written(*blocks, title=text)
    assert "\x1b" not in page and "\u202e" not in page
    shown = {"<blink>": "&lt;blink&gt;", "a & b": "a &amp; b", "\"'": "&quot;&#x27;", "\x1b[31m": "\\x1b[31m"}
    shown |= {"two\nlines": "two lines", "\u202edrow": "\\u202edrow"}
    assert page.count(shown[text]) > 40


# --- cells ----------------------------------------------------------------------------------------------------------


def test_marks_and_reasons_are_remarks_at_the_end_and_equal_ones_share_a_number() -> None:
    page = table(
        doc.Value("1", marks=("low_peak",)),
        doc.Empty("unknown_peak", "no such card"),
        doc.Value("2", marks=("low_peak",)),
    )
    assert re.findall(r'href="#remark-(\d)"', page) == ["1", "2", "1"]
    remarks = re.findall(r'<li id="remark-\d">(.*?)</li>', page)
    assert remarks[0].startswith("low_peak (") and remarks[1].endswith(": no such card")


@pytest.mark.parametrize(
    ("url", "is_link"),
    [
        ("https://example.com/a", True),
        ("HTTP://example.com", True),
        ("javascript:alert(1)", False),
        ("https://a b", False),
        ("data:text/html,x", False),
        ("//example.com", False),
        ('https://x/"onmouseover=', False),
    ],
)
def test_only_http_is_a_link(url: str, is_link: bool) -> None:
    assert ("<a href=" in body(doc.Bullets((doc.Link("name", url),)))) is is_link


def test_a_long_address_in_a_table_has_its_end_and_the_whole_where_one_points_at_it() -> None:
    path = "training/nvidia/llama2_70B-megatron/README.md"
    page = table(doc.Link(path, f"https://example.com/{path}"))
    assert f'title="{path}">…/llama2_70B-megatron/README.md</a>' in page.replace("<wbr>", "")
    assert f">{path}</a>" in body(doc.Bullets((doc.Link(path, f"https://example.com/{path}"),)))


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (("base/fp16/nvidia/README.md", "base/fp32/nvidia/README.md"), ["fp16", "fp32"]),
        (("base/fp16/a", "base/fp32/b"), ["fp16/a", "fp32/b"]),
        (("base/a", "base/a/b"), ["base/a", "base/a/b"]),
        (("base/a", "base/a"), ["base/a", "base/a"]),
    ],
)
def test_sources_in_a_cell_have_what_tells_them_apart(paths: tuple[str, ...], shown: list[str]) -> None:
    page = table(doc.Links(tuple(doc.Link(path, f"https://example.com/{path}") for path in paths)))
    assert re.findall(r">([^<>]*)</a>", page.replace("<wbr>", "")) == shown
    assert all(f'href="https://example.com/{path}"' in page for path in paths)


def test_heads_may_be_wrapped_between_parts_of_a_name() -> None:
    assert "<th>gemm_<wbr>fp16_<wbr>all</th>" in body(doc.Table((doc.Head("gemm_fp16_all"),), ((doc.Text("x"),),)))


def test_columns_of_numbers_are_aligned_and_empty_ones_left_out() -> None:
    heads = tuple(map(doc.Head, ("text", "number", "nothing", "value")))
    long = doc.Text("12 nodes with a very long name, which is wrapped")
    first = (doc.Text("abc"), doc.Text("12.5"), doc.Text(""), doc.Value("1"))
    page = body(doc.Table(heads, (first, (long, doc.Text("/"), doc.Text(""), doc.Empty("unsupported")))))
    assert re.findall(r'<td class="(\w+)">', page) == ["text", "num", "num"] * 2
    assert "nothing" not in page


def test_a_collapsed_table_is_folded_with_the_number_of_its_rows() -> None:
    page = table(doc.Text("a"), title="Rows", collapsed=True)
    assert '<details class="fold"><summary>Rows (1)</summary>' in page


# --- figures --------------------------------------------------------------------------------------------------------


def test_neighbouring_figures_share_a_grid() -> None:
    bars = doc.Bars("Bars", (doc.Bar("a", 1.0, "1 s"), doc.Bar("b", 2.0, "2 s")))
    page = body(doc.Heading("Charts", 2), one_chart(), bars, doc.Paragraph("between"), bars)
    assert page.count('<div class="charts">') == 2 and page.count("<figure") == 3


def test_a_chart_has_its_keys_in_the_legend_and_no_text_but_numbers_inside() -> None:
    series = (
        doc.ChartSeries("measured here", ((1.0, 1.0), (2.0, 3.0))),
        doc.ChartSeries("peak", ((1.0, 4.0), (2.0, 4.0)), is_limit=True),
    )
    chart = one_chart(series=series, bands=(doc.Band("interval", 1.0, 2.0, "y"), doc.Band("evaluation", 1.2, 1.4)))
    page = body(chart)
    legend = re.findall(r'<li><i class="([\w ]+)"></i><span>([\w ]+)</span>', page)
    assert legend == [
        ("k1", "measured here"), ("limit k2", "peak"), ("area kinterval", "interval"), ("area kband", "evaluation"),
    ]  # fmt: skip
    inside = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert inside and all(re.fullmatch(r"[\d.,−]+", text) for text in inside)


def test_drawings_are_small_and_use_the_colors_of_the_page() -> None:
    points = tuple((float(x), float(x * 7 % 13)) for x in range(120))
    ranges = tuple((x, y - 1, y + 1) for x, y in points)
    svg = chart_svg(one_chart(series=(doc.ChartSeries("a", points, ranges),)))
    assert len(svg) < 10_000
    assert 'stroke="var(--c1)"' in svg and not re.search("#[0-9a-f]{6}", svg)
    assert "http://www.w3.org/1999/xlink" not in svg and "<script" not in svg


def labels(chart: doc.Chart) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", chart_svg(chart))


def test_a_logarithm_leaves_out_what_it_cannot_show() -> None:
    points = ((0.0, 1.0), (1.0, 0.0), (10.0, 1.0), (100.0, float("nan")), (1000.0, 5.0))
    svg = chart_svg(one_chart(*points, log_x=True, log_y=True))
    assert "NaN" not in svg and "Infinity" not in svg


def test_bytes_are_written_in_binary_multiples_and_numbers_of_an_axis_alike() -> None:
    sizes = ((float(1 << bits), 1.0 + bits) for bits in range(10, 31, 2))
    shown = [text for text in labels(one_chart(*sizes, log_x=True, x_unit="bytes")) if text.endswith("iB")]
    assert shown[0].endswith("KiB") and shown[-1] == "1 GiB"
    numbers = labels(one_chart((0.0, 40_000.0), (1.0, 120_000.0)))
    assert {"80k", "120k"} <= set(numbers) and "80,000" not in numbers


def test_an_axis_covers_what_it_is_asked_to() -> None:
    chart = one_chart((0.0, 10.0), (1.0, 10.001), covers=(9.0, 11.0), marks=True)
    assert {"9.0", "11.0"} <= set(labels(chart))


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ((2e-5, 0.07), ["0.00001", "0.0001", "0.001", "0.01", "0.1"]),
        ((0.02, 0.07), ["0.01", "0.02", "0.05", "0.1"]),
        ((11.4, 12.4), []),
    ],
)
def test_a_logarithmic_axis_has_few_plain_numbers(values: tuple[float, float], numbers: list[str]) -> None:
    shown = labels(one_chart((1.0, values[0]), (2.0, values[1]), log_y=True, marks=True))
    assert set(numbers) <= set(shown), shown
    assert len(shown) < 20 and not any(text.endswith(("m", "µ")) for text in shown), shown


def test_every_part_of_the_range_of_a_run_of_one_value_can_be_drawn() -> None:
    """One point, one value, one bin: nothing divides by zero."""
    assert "NaN" not in chart_svg(one_chart((1.0, 1.0)))
    assert "NaN" not in histogram_svg(doc.Histogram("t", "x", "y", ((1.0, 1.01, 5),)))
    page = body(doc.HeatMap("t", "x", "y", ("a",), ("b",), ((3.0,),)), doc.Bars("t", (doc.Bar("a", 0.0, "0"),)))
    assert "nan" not in page


def test_shares_add_up_and_parts_that_are_nothing_are_left_out() -> None:
    block = doc.Shares("Time", ("a", "b", "c"), (("run", (1.0, 3.0, 0.0)),), (("1 s", "3 s", "0 s"),))
    page = body(block)
    assert re.findall(r"<em>([\d.]+%)</em>", page) == ["25.0%", "75.0%"]
    assert re.findall(r"flex:([\d.]+)", page) == ["0.2500", "0.7500"]


def test_a_matrix_is_darker_where_it_is_higher() -> None:
    page = body(doc.HeatMap("t", "to", "from", ("0", "1"), ("0", "1"), ((None, 10.0), (20.0, None))))
    cells = re.findall(r'<td( class=deep)? style="--v:([\d.]+)">([^<]+)</td>', page)
    assert cells == [("", "0", "–"), ("", "0.05", "10"), (" class=deep", "1.00", "20"), ("", "0", "–")]


# --- the head -------------------------------------------------------------------------------------------------------


def test_a_headline_has_status_cautions_and_figures_with_their_notes_and_marks() -> None:
    figures = (
        doc.KeyFigure("Throughput", doc.Value("12.5", "samples/s", ("busy_host",)), "12 to 13", True, "p_core"),
        doc.KeyFigure("MFU", doc.Empty("unknown_peak", "no such card"), headline=True),
        doc.KeyFigure("Time", doc.Value("9.1", "s")),
    )
    page = body(doc.Headline("Case", (), doc.Status("failed", False), "it broke", ("not comparable",), figures))
    assert '<h1>Case</h1><span class="pill bad">failed</span>' in page
    assert "it broke" in page and '<p class="caution">not comparable</p>' in page
    assert '>12.5</span> <span class="unit">samples/s</span>' in page and "12 to 13" in page
    assert page.count('class="mark"') == 2 and "n/a" in page
    assert page.index("p_core") < page.index("9.1")


def test_several_headlines_are_cards_below_the_title() -> None:
    page = body(doc.Headline("Row 1", ()), doc.Headline("Row 2", ()), title="Both")
    assert "<h1>Both</h1>" in page and page.count("<h2>Row") == 2


def test_text_renderers_print_a_headline_and_what_is_folded_and_skip_figures() -> None:
    from flagperf.report.terminal import to_terminal
    from flagperf_publish.render.markdown import to_markdown

    figure = doc.KeyFigure("Throughput", doc.Value("12.5", "samples/s"), "12 to 13", True)
    facts = (doc.LabelledCell("card", doc.Text("A")),)
    blocks = (
        doc.Headline("Case", facts, doc.Status("succeeded", True), "", ("careful",), (figure,)),
        doc.Fold("More", (doc.Paragraph("inside"), one_chart())),
        doc.Bars("Bars", (doc.Bar("a", 1.0, "1 s"),)),
        doc.Shares("Time", ("a",), (("run", (1.0,)),), (("1 s",),)),
        doc.Histogram("t", "x", "y", ((1.0, 2.0, 5),)),
    )
    document = doc.Document("en", blocks)
    for text in (to_markdown(document), to_terminal(document, width=100)):
        words = ("Case", "careful", "succeeded", "12.5 samples/s", "12 to 13", "More", "inside")
        assert all(word in text for word in words)
        assert "Bars" not in text and "Title" not in text


def test_few_named_points_have_numbers_and_their_names_below_and_many_titles_alone() -> None:
    few, many = (
        body(one_chart(*((place + 1.0, 2.0) for place in range(count)), names=names, marks=True))
        for count in (2, 40)
        if (names := tuple(f"<b>{place}" for place in range(count)))
    )
    assert few.count("<title>&lt;b&gt;0</title>") == 1 and few.count("<title>") == 2
    assert '<ol class="points"><li>&lt;b&gt;0</li><li>&lt;b&gt;1</li></ol>' in few
    assert len(re.findall(r"<text[^>]*>[12]</text>", few.partition("var(--muted)")[2])) >= 2
    assert many.count("<title>") == 40 and "points" not in many


def test_a_named_point_that_cannot_be_drawn_takes_no_name_from_another() -> None:
    page = body(one_chart((1.0, 0.0), (2.0, 3.0), names=("zero", "three"), marks=True, log_y=True))
    assert "zero" not in page and "<title>three</title>" in page and "<li>three</li>" in page


def test_ratios_are_placed_around_one_and_long_intervals_cut_off() -> None:
    rows = (
        doc.RatioInterval("twice", 2.0, "2", 1.9, 2.1, is_good=True),
        doc.RatioInterval("half", 0.5, "0.5", 0.01, 100.0),
        doc.RatioInterval("nothing", 0.0, "0"),
    )
    page = to_html(doc.Document("en", (doc.Intervals("Ratios", rows),)))
    twice, half, nothing = re.findall(r'<i style="left:([\d.]+)%"></i>', page)
    assert float(twice) - 50 == pytest.approx(50 - float(half)) and float(nothing) == 0
    assert 'class="range good"' in page and 'style="left:0.00%;width:100.00%"' in page
