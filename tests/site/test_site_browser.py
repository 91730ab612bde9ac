"""The leaderboard in a real browser, from a file: filters, order, comparison; both languages, phone and desktop, light
and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile_runs import SHOWN, hostile, poisoned_run
from site_building import build, installed
from web_runs import base_run, bundle_path, recorded

from browser import Visit
from flagperf.messages import catalogue
from flagperf.plausibility.doubts import marked
from flagperf.spec.published import PublishedResult
from flagperf_publish.site.board import board, published_row, run_row
from flagperf_publish.site.site_index import index_page

PHONE, DESKTOP = 390, 1280
NAMES = ("distilbert", "glm", "aquila_33b", "simulated", "failed")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Language -> a site."""
    folder = tmp_path_factory.mktemp("sites")
    paths = [*map(bundle_path, NAMES), bundle_path("distilbert_1x2")]
    for lang in ("en", "zh"):
        build(folder / lang, folder, *paths, lang=lang, allow_simulated=True)
    return {lang: folder / lang / "index.html" for lang in ("en", "zh")}


class Board(Visit):
    """What a reader does on a leaderboard."""

    def __init__(self, started: Any, path: Path, lang: Any = "en") -> None:
        super().__init__(started, str(path))
        self.index, self.texts = path, catalogue(lang)

    def choose(self, facet: str, value: str) -> None:
        label = self.page.locator(".filters label", has_text=self.texts[f"site.filter_{facet}"]).first
        label.locator("select").select_option(f"={value}" if value else "")

    def column(self, number: int) -> list[str]:
        cells = self.page.locator(f".rows tbody tr:not(.group) > td:nth-child({number})")
        return [text.split("\n")[0] for text in cells.all_inner_texts()]

    def head(self, text: str) -> Any:
        return self.page.locator(".rows thead button").filter(has_text=re.compile(f"^{re.escape(text)}[↓↑]?$"))

    def tick(self, *names: str) -> None:
        for name in names:
            self.page.locator(f'.rows input[data-name="{name}"]').check()

    def compare(self) -> None:
        self.page.get_by_role("button", name=self.texts["site.compare"], exact=True).click()

    def check(self) -> None:
        """Nothing was said, nothing was asked for, and nothing is cut."""
        assert self.said == []
        assert {url.partition("#")[0] for url in self.requested} == {self.index.as_uri()}


@pytest.fixture
def visit(chromium: Any, sites: dict[str, Path]) -> Iterator[Board]:
    opened = Board(chromium, sites["en"])
    yield opened
    opened.context.close()


def of_time(name: str) -> str:
    return bundle_path(name).name


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_board_fits_every_screen_and_asks_for_nothing(lang: str, chromium: Any, sites: dict[str, Path]) -> None:
    visit = Board(chromium, sites[lang], lang)
    for case in ("", "distilbert"):
        visit.choose("case", case)
        for width in (DESKTOP, PHONE):
            for scheme in ("light", "dark"):
                visit.look(width, scheme)
                assert visit.problems() == [], (case, width, scheme)
    visit.tick(of_time("distilbert"), of_time("simulated"))
    visit.compare()
    for width in (DESKTOP, PHONE):
        visit.look(width, "light")
        assert visit.problems() == [], ("comparison", width)
    assert visit.page.evaluate("document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[lang]
    visit.check()
    visit.context.close()


def test_filters_leave_the_rows_that_fit_and_count_them(visit: Board) -> None:
    assert visit.page.inner_text(".count") == "30 of 30 rows"
    visit.choose("case", "distilbert")
    assert visit.page.inner_text("h2.case") == "DistilBERT, sentence classification"
    assert visit.page.inner_text(".count") == "12 of 30 rows"
    visit.choose("vendor", "cpu")
    visit.choose("shape", "1x1")
    assert visit.page.inner_text(".count") == "2 of 30 rows"
    options = visit.page.locator(".filters label", has_text="Shape").locator("option").all_inner_texts()
    assert options == ["all", "1x1 (2)", "1x2 (1)"], "what another choice would show"
    visit.page.get_by_role("button", name="Reset").click()
    visit.page.locator("input[type=search]").fill("a100 README")
    shown = visit.page.locator(".rows tbody tr").count()
    assert shown and all(text.startswith("A100") for text in visit.column(2))
    visit.page.locator("input[type=search]").fill("no such words")
    assert visit.page.locator(".nothing").is_visible()
    visit.check()


def test_rows_are_sorted_by_a_click_and_missing_values_come_last(visit: Board) -> None:
    visit.choose("case", "distilbert")
    visit.choose("profile", "standard")
    heads = visit.page.locator(".rows thead th").all_inner_texts()
    place = next(number for number, text in enumerate(heads, start=1) if text.startswith("p_core"))
    numbers = [float(text) for text in visit.column(place) if text != "–"]
    assert len(numbers) == 4 and numbers == sorted(numbers, reverse=True), "the main result, highest first"
    assert visit.column(place)[4:] == ["–"] * 4
    visit.head("p_core").click()
    assert [float(text) for text in visit.column(place)[:4]] == sorted(numbers)
    assert visit.column(place)[4:] == ["–"] * 4
    assert visit.page.locator("th[aria-sort]").inner_text().startswith("p_core")
    visit.head("Card").click()
    assert visit.column(2) == sorted(visit.column(2))
    visit.check()


def test_another_profile_is_never_sorted_among_these(visit: Board) -> None:
    visit.choose("case", "distilbert")
    assert visit.page.locator("tr.group").all_inner_texts() == ["Profile standard: 8 rows", "Profile tiny: 4 rows"]
    assert "several shapes" in visit.page.inner_text(".caution")


def test_ticked_rows_are_side_by_side_without_a_verdict(visit: Board) -> None:
    visit.choose("case", "distilbert")
    published = "published:distilbert-nvidia-a100-sxm4-40gb-1x8-fp32"
    visit.tick(published)
    assert visit.page.locator(".bar-ticked .primary").is_disabled()
    visit.tick(of_time("distilbert"), of_time("simulated"))
    visit.compare()
    said = visit.page.inner_text(".comparison")
    assert "B has profile tiny, which is not the published configuration" in said
    assert "C is simulated: no device was used" in said
    assert said.index("Not comparable") < said.index("Results"), "first what makes them incomparable"
    own = recorded("distilbert").run.metric("p_core")
    assert own is not None and own.value is not None
    assert f"B / A = {own.value / 1942.6:.4g}" in said and "adapter" in said
    ids = f"{published} {of_time('distilbert')} {of_time('simulated')}"
    assert visit.page.inner_text("pre") == f"flagperf compare {ids} --allow-simulated"
    assert not re.search(r"\b(faster|slower|better|worse)\b", said), "a published number never gets a verdict"
    assert "without a verdict on published numbers" in said
    visit.page.get_by_role("button", name="All rows").click()
    assert visit.page.locator(".rows").is_visible()
    visit.check()


def test_rows_of_two_cases_have_no_ratio(visit: Board) -> None:
    visit.tick(of_time("distilbert"), of_time("glm"))
    visit.compare()
    assert "A is of case distilbert, B of case glm" in visit.page.inner_text(".comparison .caution")
    assert visit.page.locator(".ratio").count() == 0


def test_what_does_not_differ_is_not_listed(visit: Board) -> None:
    visit.tick(of_time("distilbert"), bundle_path("distilbert_1x2").name)
    visit.compare()
    said = visit.page.inner_text(".comparison")
    assert "Not comparable" not in said
    assert "What differs: hardware" in said and "What differs: precision" not in said
    assert "this command says what is faster" in visit.page.inner_text(".comparison .foot"), "promised to runs alone"


def test_changes_of_published_results_are_among_what_differs(visit: Board) -> None:
    visit.choose("case", "distilbert")
    published = "published:distilbert-nvidia-a100-sxm4-40gb-1x"
    visit.tick(f"{published}1-fp32-bs=96-lr=1.5e-4", f"{published}8-fp32", of_time("distilbert"))
    visit.compare()
    said = visit.page.inner_text(".comparison")
    assert said.index("What differs: configuration") < said.index("changes from the profile") < said.index("Results")
    line = visit.page.locator(".sides tr", has_text="changes from the profile")
    assert line.locator("td").all_inner_texts() == ["bs=96, lr=1.5e-4", "–", "–"]


def test_a_run_that_failed_and_when_are_seen_without_scrolling(visit: Board) -> None:
    visit.look(DESKTOP, "light")
    for case in ("", "distilbert"):
        visit.choose("case", case)
        row = visit.page.locator(".rows tr", has=visit.page.locator(f'[data-name="{of_time("failed")}"]'))
        badge = row.locator(".card-cell .pill")
        assert badge.inner_text() != "" and badge.get_attribute("title"), "why it ended so"
        assert row.bounding_box()["height"] < 90, "no text stretches it"
        date = row.locator("td", has_text=re.compile(f"^{recorded('failed').run.created[:10]}$"))
        assert date.bounding_box()["x"] + date.bounding_box()["width"] < DESKTOP - 20
        other = visit.page.locator(".rows tr", has=visit.page.locator(f'[data-name="{of_time("distilbert")}"]'))
        assert other.locator(".card-cell .pill").count() == 0, "one that succeeded"
    visit.look(PHONE, "light")
    assert row.locator("td.status .sub").is_visible() and not badge.is_visible(), "there it is read, once"


def test_what_a_reader_chose_is_in_the_address(chromium: Any, sites: dict[str, Path]) -> None:
    visit = Board(chromium, sites["en"])
    visit.choose("case", "distilbert")
    visit.tick(of_time("distilbert"), of_time("simulated"))
    visit.compare()
    again = chromium.new_page()
    again.goto(visit.page.url)
    assert again.inner_text(".comparison") == visit.page.inner_text(".comparison")
    again.goto(f"{sites['en'].as_uri()}#case=no+such&status=odd&grade=odd&sort=constructor&ticked=none&compare=yes")
    assert again.inner_text(".count") == "0 of 30 rows"
    again.close()
    visit.context.close()


def test_pages_of_runs_are_linked_both_ways(visit: Board, sites: dict[str, Path]) -> None:
    visit.page.locator("td.source a", has_text=of_time("distilbert")).click()
    assert visit.page.url.endswith(f"/runs/{of_time('distilbert')}.html")
    visit.page.get_by_role("link", name="All runs").click()
    assert visit.page.url.partition("#")[0] == sites["en"].as_uri()
    assert visit.said == []


def test_a_printed_board_has_rows_and_no_controls(visit: Board) -> None:
    visit.page.emulate_media(media="print")
    assert not visit.page.locator(".filters").is_visible() and visit.page.locator(".rows").is_visible()
    assert visit.page.pdf(format="A4")[:5] == b"%PDF-"


def test_without_script_the_pages_are_linked(chromium: Any, sites: dict[str, Path]) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(sites["en"].as_uri())
    page.get_by_role("link", name=of_time("distilbert")).click()
    assert page.url.endswith(f"/runs/{of_time('distilbert')}.html")
    context.close()


def test_many_rows_are_drawn_as_the_reader_comes_to_them(chromium: Any, tmp_path: Path) -> None:
    run = run_row(recorded("distilbert"), (), "en")
    rows = [msgspec.structs.replace(run, name=f"run-{number:04d}") for number in range(500)]
    path = tmp_path / "index.html"
    path.write_text(index_page(board(rows, installed(), "en"), "", "en"))
    visit = Board(chromium, path)
    drawn = visit.page.locator(".rows tbody tr")
    assert drawn.count() < 200
    printed = Board(chromium, path)
    printed.page.pdf(format="A4")
    assert printed.page.locator(".rows tbody tr").count() == len(rows), "on paper nobody scrolls"
    printed.context.close()
    while (before := drawn.count()) < len(rows):
        visit.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        drawn.nth(before).wait_for(state="attached")
    assert not visit.page.locator(".more").is_visible()
    visit.context.close()


# --- text of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_text_of_a_run_or_reference_becomes_part_of_the_page(lang: Any, chromium: Any, tmp_path: Path) -> None:
    runs = [poisoned_run(each) for each in marked([recorded("distilbert"), recorded("failed"), base_run()])]
    rows = [run_row(run, (SHOWN,), lang) for run in runs]
    manifest = runs[0].run.manifest
    plain = msgspec.to_builtins(installed()["distilbert"].references[0])
    evil = {name: value if name in ("values", "grade") else hostile(value) for name, value in plain.items()}
    rows.append(published_row(SHOWN, msgspec.convert(evil, PublishedResult), manifest))
    manifests = {row.case: run.run.manifest for row, run in zip(rows, runs, strict=False)}
    path = tmp_path / "index.html"
    path.write_text(index_page(board(rows, manifests, lang), SHOWN, lang))
    text = path.read_text()
    assert text.count("<script") == 2 and "<img" not in text and "\x1b" not in text and "\u202e" not in text
    visit = Board(chromium, path, lang)
    assert SHOWN.split('"')[0] in visit.page.inner_text(".rows")
    for box in visit.page.locator(".rows input").all():
        box.check()
    visit.compare()
    assert SHOWN.split('"')[0] in visit.page.inner_text(".comparison")
    assert visit.page.evaluate("[typeof window.hacked, document.scripts.length, document.images.length]") == [
        "undefined", 2, 0,
    ]  # fmt: skip
    visit.look(PHONE, "light")
    assert visit.problems() == []
    visit.check()
    visit.context.close()


def test_the_policy_allows_this_script_and_no_other(visit: Board, sites: dict[str, Path]) -> None:
    text = sites["en"].read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None and "unsafe" not in policy[1] and "default-src 'none'" in policy[1]
    visit.page.evaluate("""() => {
      const script = document.createElement('script');
      script.textContent = 'window.hacked = 1';
      document.body.append(script);
    }""")
    assert visit.page.evaluate("typeof window.hacked") == "undefined"


def test_the_data_is_json(sites: dict[str, Path]) -> None:
    data = re.search(r'id="data">(.*?)</script>', sites["en"].read_text(), re.DOTALL)
    assert data is not None
    assert [case["name"] for case in json.loads(data[1])["cases"]] == ["aquila_33b", "distilbert", "glm"]
