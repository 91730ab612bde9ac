"""A leaderboard of 10,000 runs in a headless browser, from a file: first paint, and the time of a filter. Its rows are
made up; what writes the page is what writes every site."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Figure, NotMeasured
from flagperf.metrics.registry import main_entries
from flagperf.plugins.installed import load_plugins
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten
from flagperf_publish.site.board import BoardFigure, BoardRow, board
from flagperf_publish.site.site_index import index_page

NUM_RUNS = 10_000
NUM_ROUNDS = 7
PAINT_LIMIT_MS, FILTER_LIMIT_MS = 2000, 100
VENDORS = tuple(f"vendor-{letter}" for letter in "abcdefghij")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def measure() -> Iterator[Figure]:
    manifests = {name: case.manifest for name, case in load_plugins().complete_cases().items()}
    began = time.perf_counter()
    page = index_page(board(made_up_rows(manifests), manifests, "en"), "", "en")
    written = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.html"
        path.write_text(page)
        paints, filters, sorts = _in_browser(path)
    size = f"{len(page.encode()) / 1e6:.1f} MB, written in {written:.1f} s"
    paint = min(paints)
    how = f"file:// to the first rows on the screen, {NUM_RUNS:,} runs, least of {NUM_ROUNDS} loads"
    size += f"; median {statistics.median(paints):.0f} ms"
    yield Figure("site_first_paint", f"{paint:.0f} ms", f"<= {PAINT_LIMIT_MS}", paint <= PAINT_LIMIT_MS, how, (size,))
    slowest = max(map(min, filters.values()))
    details = tuple(
        f"{name}: {min(spent):.1f} ms, median {statistics.median(spent):.1f}" for name, spent in filters.items()
    )
    how = "the slowest filter, from the reader's choice to the new layout, least of as many"
    yield Figure("site_filter", f"{slowest:.1f} ms", f"<= {FILTER_LIMIT_MS}", slowest <= FILTER_LIMIT_MS, how, details)
    yield Figure("site_sort", f"{min(sorts):.1f} ms", "", None, "by a metric, all rows of the largest case")


def made_up_rows(manifests: dict[str, Manifest]) -> list[BoardRow]:
    """As a lab has them: few cards, shapes and settings, and figures that are all different."""
    chance = random.Random(0)
    names = list(manifests)
    return [_row(number, manifests[chance.choice(names)], chance) for number in range(NUM_RUNS)]


def _row(number: int, manifest: Manifest, chance: random.Random) -> BoardRow:
    vendor, devices = chance.choice(VENDORS), chance.choice((1, 2, 4, 8))
    shape = f"{chance.choice((1, 2, 4, 16))}x{devices}"
    settings = {f"configuration/{key}": str(value) for key, value in flatten(manifest.values)}
    changed = chance.choice(list(settings))
    packages = {f"software/package-{each}": f"1.{chance.randrange(3)}.0" for each in range(20)}
    return BoardRow(
        name=f"20260101T{number:06d}Z-{manifest.name}-{vendor}-{shape}-{number:06x}",
        case=manifest.name,
        vendor=vendor,
        card=f"{vendor[-1].upper()}{chance.randrange(4)}00",
        shape=shape,
        precision=chance.choice(("fp32", "tf32", "bf16", "fp16")),
        profile=chance.choice(list(manifest.profiles)),
        status="succeeded" if chance.random() < 0.95 else "failed",
        grade="recomputable",
        created=f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}T03:04:05+00:00",
        changes=f"{changed.partition('/')[2]}=1" if chance.random() < 0.5 else "",
        tags=chance.choice(("", "main", "candidate")),
        figures={entry.name: _figure(chance) for entry in main_entries(manifest)[:12]},
        identity={"case": manifest.name, "profile": "standard", "case_version": "1", "dataset": manifest.dataset},
        setup={
            **settings,
            **packages,
            "hardware/host": f"node{chance.randrange(64):02d}",
            "environment/kernel": f"6.{chance.randrange(9)}",
        },
    )


def _figure(chance: random.Random) -> BoardFigure:
    value = round(chance.lognormvariate(6, 1), 3)
    return BoardFigure(f"{value:.1f}", value, chance.choice(("", "", "", "busy_host")))


# --- in the browser -------------------------------------------------------------------------------------------------

FILTERS = {
    "case": "distilbert",
    "vendor": VENDORS[0],
    "card": "A000",
    "precision": "bf16",
    "shape": "1x8",
    "profile": "standard",
}

CHOOSE = """(value) => {
  const labels = [...document.querySelectorAll('.filters label')];
  const select = labels.find((label) => label.textContent.startsWith(value[0])).querySelector('select');
  const began = performance.now();
  select.value = value[1];
  select.dispatchEvent(new Event('change'));
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""

PAINTED = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(
  () => done([performance.now(), document.querySelectorAll('.rows tbody tr').length]))))"""

SORT = """() => {
  const buttons = [...document.querySelectorAll('.rows thead button')];
  const button = buttons.find((each) => each.textContent.startsWith('e2e_time'));
  const began = performance.now();
  button.click();
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""

TITLES = dict(zip(FILTERS, ("Case", "Vendor", "Card", "Precision", "Shape", "Profile"), strict=True))


def _in_browser(path: Path) -> tuple[list[float], dict[str, list[float]], list[float]]:
    """Milliseconds: of every load, of every filter, of sorting."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise NotMeasured(f"no browser on PATH ({', '.join(PROGRAMS)})")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            paints = [_load(page, path) for _ in range(NUM_ROUNDS)]
            filters = {name: [_choose(page, name) for _ in range(NUM_ROUNDS)] for name in FILTERS}
            page.evaluate(CHOOSE, [TITLES["case"], "=distilbert"])
            return paints, filters, [page.evaluate(SORT) for _ in range(NUM_ROUNDS)]
        finally:
            browser.close()


def _load(page: Any, path: Path) -> float:
    page.goto("about:blank")
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector(".rows tbody tr")
    painted, num_rows = page.evaluate(PAINTED)
    if not num_rows:
        raise NotMeasured("the page shows no rows")
    return float(painted)


def _choose(page: Any, name: str) -> float:
    """The filter and back, the slower of the two."""
    there, back = (page.evaluate(CHOOSE, [TITLES[name], value]) for value in (f"={FILTERS[name]}", ""))
    return float(max(there, back))
