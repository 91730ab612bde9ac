"""`make docs-site`: no warning and no broken link, every page has its place, and it works from files alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from browser import Visit

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / "docs" / "site"
PYTHON = ROOT / ".venv-docs" / "bin" / "python"
PHONE, DESKTOP = 390, 1280
WIDTHS = (PHONE, 768, DESKTOP, 1340, 1440)


def build(builder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    if not (PYTHON.parents[1] / ".ready").exists():
        reason = "what builds the documentation is not installed: make .venv-docs/.ready"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    command = [str(PYTHON), str(builder / "build.py"), str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(BUILDER, folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder


@pytest.mark.full
def test_every_document_is_a_page(site: Path) -> None:
    texts = {path.stem: path for path in site.rglob("*.html")}
    documents = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md")]
    assert {path.stem for path in documents} <= set(texts) and len(documents) > 20
    for folder, pattern in (("cases", "cases/flagperf_cases/*/README.md"), ("adapters", "plugins/*/README.md")):
        pages = {path.stem for path in (site / folder).glob("*.html")}
        assert pages == {path.parent.name for path in ROOT.glob(pattern)} and len(pages) >= 4
    assert "flagperf_memory_probes" in texts["api"].read_text()


@pytest.mark.full
def test_it_works_from_files_on_phones_and_desktops(site: Path, chromium: Any) -> None:
    """Nothing is fetched, nothing scrolls sideways, nothing complains; words are found, in both languages."""
    visit = Visit(chromium, str(site / "index.html"))
    too_wide = [
        (path.relative_to(site).as_posix(), width)
        for path in sorted(site.rglob("*.html"))
        for width in WIDTHS
        if is_too_wide(visit, path, width)
    ]
    assert too_wide == []
    assert "metrics.html" in found(visit, site / "index.html", "throttled_share")
    assert "tutorials/vendor.html" in found(visit, site / "zh" / "index.html", "探针")
    assert english_words(visit.page.inner_text("body")) == []
    visit.page.goto(f"file://{site / 'zh' / 'tutorials' / 'buyer.html'}")
    around = visit.page.locator(".related-pages, .toc-title, .sidebar-drawer, .back-to-top")
    assert english_words("\n".join(around.all_inner_texts())) == []
    assert found(visit, site / "index.html", "xyzzy") == ""
    assert visit.said == []
    assert [address for address in visit.requested if not address.startswith("file://")] == []


def english_words(text: str) -> list[str]:
    """What Sphinx and its theme say in English; names are of no language."""
    return [word for word in re.findall(r"[A-Za-z]{3,}", text) if word not in ("flagperf", "English", "Furo")]


def is_too_wide(visit: Any, path: Path, width: int) -> bool:
    if width == WIDTHS[0]:
        visit.page.goto(f"file://{path}")
    visit.look(width, "light")
    return bool(visit.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def found(visit: Any, start: Path, words: str) -> str:
    """The addresses of what the search of a page finds."""
    visit.look(DESKTOP, "light")
    visit.page.goto(f"file://{start}")
    visit.page.fill(".sidebar-search", words)
    visit.page.press(".sidebar-search", "Enter")
    visit.page.wait_for_selector(".search-summary:not(:empty)")
    visit.page.wait_for_function("!document.querySelector('#search-progress')?.textContent.includes('...')")
    results = visit.page.locator("#search-results .search a")
    return " ".join(results.nth(index).get_attribute("href") for index in range(results.count()))


@pytest.mark.full
def test_a_link_that_leads_nowhere_is_named_and_leaves_no_site(tmp_path: Path) -> None:
    shutil.copytree(BUILDER, tmp_path / "docs" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs" / "zh").mkdir()
    (tmp_path / "VERSION").write_text("1.0\n")
    (tmp_path / "docs" / "index.md").write_text("# Title\n\n[a](nowhere.md) and [b](#no-such-section)\n")
    done = build(tmp_path / "docs" / "site", tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr and "no-such-section" in done.stderr
    assert not (tmp_path / "site").exists()
