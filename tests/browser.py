"""A real browser for the tests of pages, one for each process of pytest."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Skips the test, with the reason, where there is none. In CI that is a failure: `.ci/run` installs one."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        reason = f"no browser on PATH ({', '.join(PROGRAMS)}); .ci/run names the package"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


class Visit:
    """A page in the browser, with all that it said and asked for."""

    def __init__(self, started: Any, path: str) -> None:
        self.context = started.new_context(viewport={"width": 1280, "height": 900})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.goto(f"file://{path}")

    def look(self, width: int, scheme: str) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)

    def unfold(self) -> None:
        self.page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")

    def problems(self) -> list[str]:
        """What a reader would see: a page that scrolls sideways, text that is cut or leaves its place."""
        found: list[str] = self.page.evaluate(PROBLEMS)
        return found


PROBLEMS = """() => {
  const found = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push(`page is ${document.documentElement.scrollWidth} wide`);
  const scrolls = (node) => node.closest('.box, pre');
  for (const node of document.querySelectorAll('body *')) {
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    const words = [...node.childNodes].filter((each) => each.nodeType === 3 && each.data.trim());
    const name = `${node.tagName}.${node.getAttribute('class') || ''} ${node.textContent.slice(0, 40)}`;
    const overflows = node.clientWidth && node.scrollWidth > node.clientWidth + 1;
    if (style.overflowX === 'hidden' && overflows) found.push(`cut: ${name}`);
    if (style.textOverflow === 'ellipsis') found.push(`shortened: ${name}`);
    if (!words.length || !box.width || scrolls(node)) continue;
    if (node.ownerSVGElement) {
      const figure = node.closest('figure').getBoundingClientRect();
      if (box.left < figure.left - 1 || box.right > figure.right + 1) found.push(`outside its figure: ${name}`);
    } else if (box.right > width + 1 || box.left < -1 || (overflows && style.display !== 'inline')) {
      found.push(`outside the page: ${name}`);
    }
  }
  return found;
}"""
