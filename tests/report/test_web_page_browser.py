"""Pages with charts in a real browser: every kind of case, both languages, phone and desktop, light and dark. No text
of a run, its environment, its raw files or its case becomes part of a page."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile_runs import SHOWN, poisoned_run
from web_runs import base_run, bundle_path, html_page, operators_run, recorded

from browser import Visit
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import RecordedRun
from flagperf.compare.comparison import compare, parse_limit
from flagperf.compare.sides import named_sides
from flagperf_publish.pages.comparison_page import comparison_web_page
from flagperf_publish.pages.layouts import to_html, web_document
from flagperf_publish.pages.timeline import read_course

NAMES = ("distilbert", "glm", "llama2_7b_finetune", "llama2_70b", "aquila_33b", "simulated", "failed", "base")
PHONE, DESKTOP, PAPER = 390, 1280, 718
"""In pixels; of A4 without its margins."""


@pytest.fixture
def visit(chromium: Any, tmp_path: Path) -> Iterator[Callable[[str], Visit]]:
    visits: list[Visit] = []

    def open_page(html: str) -> Visit:
        path = tmp_path / "page.html"
        path.write_text(html)
        visits.append(Visit(chromium, str(path)))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()


def comparison_page(lang: Any, folder: Path) -> str:
    words = [str(bundle_path("distilbert")), str(bundle_path("simulated")), "published:A100 2x8"]
    sides = named_sides(words, None, folder, lambda: [recorded("distilbert").run.manifest])
    return to_html(comparison_web_page(compare(sides, 0.01, [parse_limit("p_core < -5%")], []), lang))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("names", [*((name,) for name in (*NAMES, "operators")), ("distilbert", "failed"), ()])
def test_a_page_fits_every_screen_and_asks_for_nothing(
    names: tuple[str, ...], lang: str, visit: Callable[[str], Visit], tmp_path: Path
) -> None:
    """Without names, it is a comparison."""
    shown = visit(html_page(*names, lang=lang) if names else comparison_page(lang, tmp_path))
    shown.unfold()
    for width in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            shown.look(width, scheme)
            assert shown.problems() == [], (width, scheme)
    assert shown.said == []
    assert shown.requested == [(tmp_path / "page.html").as_uri()]
    assert shown.page.evaluate("document.scripts.length") == 0
    assert shown.page.evaluate("document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[lang]


def test_dark_and_light_are_readable(visit: Callable[[str], Visit]) -> None:
    """Text and lines have other colors than what is behind them, in both."""
    shown, seen = visit(html_page("distilbert")), {}
    for scheme in ("light", "dark"):
        shown.look(DESKTOP, scheme)
        seen[scheme] = shown.page.evaluate(COLORS)
        assert contrast(*seen[scheme][:2]) > 7, "body text"
        assert contrast(*seen[scheme][2:4]) > 4.5, "numbers of an axis"
        assert contrast(*seen[scheme][4:6]) > 3, "a line of a chart"
    assert seen["light"] != seen["dark"]


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


def test_a_printed_page_shows_what_is_folded(visit: Callable[[str], Visit]) -> None:
    shown = visit(html_page("distilbert"))
    shown.page.emulate_media(media="print")
    assert shown.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert shown.page.pdf(format="A4")[:5] == b"%PDF-"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ["gemm", "aquila_33b"])
def test_wide_tables_fit_on_paper(name: str, lang: str, visit: Callable[[str], Visit]) -> None:
    """Those of published results, with the most columns. Nothing scrolls there."""
    shown = visit(html_page(name, lang=lang))
    shown.unfold()
    shown.page.emulate_media(media="print")
    shown.page.set_viewport_size({"width": PAPER, "height": 1000})
    assert shown.page.evaluate("document.documentElement.scrollWidth") == PAPER
    assert shown.page.evaluate(WIDER_THAN_THEIR_BOX) == []
    assert shown.page.evaluate(MOST_LINES_OF_A_LINK) <= 3, "sources are not wrapped at a few letters"


WIDER_THAN_THEIR_BOX = """() => [...document.querySelectorAll('table')]
  .filter((table) => table.scrollWidth > table.parentElement.clientWidth + 1)
  .map((table) => table.tHead.innerText)"""

MOST_LINES_OF_A_LINK = """() => Math.max(...[...document.querySelectorAll('td > a')].map(
  (link) => link.getBoundingClientRect().height / parseFloat(getComputedStyle(link).lineHeight)))"""


# --- text of others -------------------------------------------------------------------------------------------------


def page_of(recorded: RecordedRun, lang: Any = "en", **more: Any) -> str:
    return to_html(web_document([recorded], lang, allow_simulated=True, **{"courses": {}, **more}))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ["distilbert", "llama2_70b", "aquila_33b", "simulated", "base", "operators"])
def test_no_text_of_a_run_becomes_part_of_the_page(name: str, lang: str, chromium: Any, tmp_path: Path) -> None:
    made = {"base": base_run, "operators": operators_run}
    plain = made[name]() if name in made else read_bundle(bundle_path(name))
    path = tmp_path / "page.html"
    path.write_text(page_of(poisoned_run(plain), lang))
    text = path.read_text()
    assert "<script" not in text and "<img" not in text and "\x1b" not in text and "\u202e" not in text
    assert text.count(html.escape(SHOWN)) > 30
    visit = Visit(chromium, str(path))
    assert visit.page.evaluate("[typeof window.hacked, document.scripts.length, document.images.length]") == [
        "undefined", 0, 0,
    ]  # fmt: skip
    assert SHOWN.split('"')[0] in visit.page.inner_text("body")
    assert visit.said == [] and visit.requested == [path.as_uri()]
    visit.context.close()


def test_neither_does_text_of_raw_files(tmp_path: Path) -> None:
    """Names of devices and of what a case reports come from events and samples as well."""
    bundle = shutil.copytree(bundle_path("simulated"), tmp_path / "bundle")
    recorded = read_bundle(bundle)
    card = recorded.run.job.nodes[0].devices[0].id
    evil = msgspec.json.encode(card + "<script>").decode()[1:-1]
    for file in [*bundle.glob("events/*"), *bundle.glob("samples/*"), bundle / "run.json"]:
        file.write_text(file.read_text().replace(card, evil))
    recorded = read_bundle(bundle)
    page = page_of(recorded, courses={recorded.run.id: read_course(bundle, recorded.run)})
    assert "<script" not in page
    assert html.escape(card + "<script>") in page


def test_only_http_addresses_are_links() -> None:
    recorded = read_bundle(bundle_path("distilbert"))
    sources = (
        "javascript:alert(1)",
        "https://example.com/a?b=1&c='2'",
        "https://example.com/plain",
        "data:text/html,x",
    )
    pairs = zip(recorded.run.manifest.references, sources, strict=False)
    references = tuple(msgspec.structs.replace(reference, source=source) for reference, source in pairs)
    manifest = msgspec.structs.replace(recorded.run.manifest, references=references)
    run = msgspec.structs.replace(recorded.run, manifest=manifest)
    page = page_of(msgspec.structs.replace(recorded, run=run), published=True)
    assert 'href="https://example.com/plain"' in page
    assert 'href="javascript' not in page and 'href="data' not in page and "'2'\"" not in page
