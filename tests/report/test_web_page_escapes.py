"""Text of a bundle is shown on a page with charts, and never part of it: in every field that a run, its environment,
its raw files or its case can bring."""

from __future__ import annotations

import html
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile_runs import SHOWN, poisoned_run
from web_runs import base_run, bundle_path, operators_run

from browser import Visit
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import RecordedRun
from flagperf_publish.pages.layouts import to_html, web_document
from flagperf_publish.pages.timeline import read_course


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
