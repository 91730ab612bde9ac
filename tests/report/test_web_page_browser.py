"""Pages with charts in a real browser: every kind of case, both languages, phone and desktop, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from web_runs import bundle_path, html_page, recorded

from browser import Visit
from flagperf.compare.comparison import compare, parse_limit
from flagperf.compare.sides import named_sides
from flagperf_publish.pages.comparison_page import comparison_web_page
from flagperf_publish.pages.layouts import to_html

PAGES = (
    "distilbert",
    "glm",
    "llama2_7b_finetune",
    "llama2_70b",
    "aquila_33b",
    "simulated",
    "failed",
    "base",
    "operators",
)
PHONE, DESKTOP, PAPER = 390, 1280, 718
"""In pixels; of A4 without its margins."""


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen_and_asks_for_nothing(name: str, lang: str, chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page(name, lang=lang))
    visit = Visit(chromium, str(path))
    visit.unfold()
    for width in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            visit.look(width, scheme)
            assert visit.problems() == [], (width, scheme)
    assert visit.said == []
    assert visit.requested == [path.as_uri()]
    assert visit.page.evaluate("document.scripts.length") == 0
    assert visit.page.evaluate("document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[lang]
    visit.context.close()


def test_several_runs_fit_too(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page("distilbert", "failed"))
    visit = Visit(chromium, str(path))
    visit.unfold()
    for width in (DESKTOP, PHONE):
        visit.look(width, "light")
        assert visit.problems() == []
    visit.context.close()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_comparison_fits_too(lang: Any, chromium: Any, tmp_path: Path) -> None:
    words = [str(bundle_path("distilbert")), str(bundle_path("simulated")), "published:A100 2x8"]
    sides = named_sides(words, None, tmp_path, lambda: [recorded("distilbert").run.manifest])
    path = tmp_path / "page.html"
    path.write_text(to_html(comparison_web_page(compare(sides, 0.01, [parse_limit("p_core < -5%")], []), lang)))
    visit = Visit(chromium, str(path))
    visit.unfold()
    for width in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            visit.look(width, scheme)
            assert visit.problems() == [], (width, scheme)
    assert visit.said == [] and visit.requested == [path.as_uri()]
    visit.context.close()


def test_dark_and_light_are_readable(chromium: Any, tmp_path: Path) -> None:
    """Text and lines have other colors than what is behind them, in both."""
    path = tmp_path / "page.html"
    path.write_text(html_page("distilbert"))
    visit = Visit(chromium, str(path))
    seen = {}
    for scheme in ("light", "dark"):
        visit.look(DESKTOP, scheme)
        seen[scheme] = visit.page.evaluate(COLORS)
        assert contrast(*seen[scheme][:2]) > 7, "body text"
        assert contrast(*seen[scheme][2:4]) > 4.5, "numbers of an axis"
        assert contrast(*seen[scheme][4:6]) > 3, "a line of a chart"
    assert seen["light"] != seen["dark"]
    visit.context.close()


COLORS = """() => {
  const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
  const surface = of('figure', 'backgroundColor');
  const line = document.querySelector('figure svg path[stroke="var(--c1)"]');
  return [of('body', 'color'), of('body', 'backgroundColor'), of('figure svg text', 'fill'), surface,
          getComputedStyle(line).stroke, surface];
}"""


def contrast(one: str, other: str) -> float:
    """By the rule of WCAG 2."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_printed_page_shows_what_is_folded(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page("distilbert"))
    visit = Visit(chromium, str(path))
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert visit.page.pdf(format="A4")[:5] == b"%PDF-"
    visit.context.close()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ["gemm", "aquila_33b"])
def test_wide_tables_fit_on_paper(name: str, lang: str, chromium: Any, tmp_path: Path) -> None:
    """Those of published results, with the most columns. Nothing scrolls there."""
    path = tmp_path / "page.html"
    path.write_text(html_page(name, lang=lang))
    visit = Visit(chromium, str(path))
    visit.unfold()
    visit.page.emulate_media(media="print")
    visit.page.set_viewport_size({"width": PAPER, "height": 1000})
    assert visit.page.evaluate("document.documentElement.scrollWidth") == PAPER
    assert visit.page.evaluate(WIDER_THAN_THEIR_BOX) == []
    assert visit.page.evaluate(MOST_LINES_OF_A_LINK) <= 3, "sources are not wrapped at a few letters"
    visit.context.close()


WIDER_THAN_THEIR_BOX = """() => [...document.querySelectorAll('table')]
  .filter((table) => table.scrollWidth > table.parentElement.clientWidth + 1)
  .map((table) => table.tHead.innerText)"""

MOST_LINES_OF_A_LINK = """() => Math.max(...[...document.querySelectorAll('td > a')].map(
  (link) => link.getBoundingClientRect().height / parseFloat(getComputedStyle(link).lineHeight)))"""


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<div style='width:2000px'>wide</div>", "page is 2000 wide"),
        ("<p style='overflow:hidden;white-space:nowrap;width:40px'>a long line of text</p>", "cut:"),
        ("<p style='position:absolute;left:-20px'>gone</p>", "outside the page:"),
        ("<figure style='margin-left:50px'><svg><text x=-30 y=9>far</text></svg></figure>", "outside its figure:"),
    ],
)
def test_what_a_reader_would_see_is_found(body: str, problem: str, chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><style>* {{margin: 0}}</style><body>{body}")
    visit = Visit(chromium, str(path))
    assert any(found.startswith(problem) for found in visit.problems())
    visit.context.close()
