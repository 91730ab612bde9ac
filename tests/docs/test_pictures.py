"""The pictures of README and start page are real, true and small, and fetch nothing."""

from __future__ import annotations

import re

from write_pictures import PICTURES, ROOT, badges, terminal


def test_the_terminal_shows_what_flagperf_prints_today() -> None:
    assert (PICTURES / "terminal.svg").read_text() == terminal(), "run `make pictures`"


def test_badges_say_what_the_metadata_says() -> None:
    assert {name: (PICTURES / name).read_text() for name in badges()} == badges(), "run `make pictures`"


def test_pictures_fetch_nothing_and_are_small() -> None:
    for path in PICTURES.glob("*.svg"):
        assert re.findall(r"url\(\s*[\"']?http|href=\"http|<script|@import", path.read_text()) == [], path.name
    assert [path.name for path in PICTURES.iterdir() if path.stat().st_size > 150_000] == []
    assert sum(path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.is_file()) < 1_500_000


def test_every_file_that_the_readme_links_exists() -> None:
    """Unlike the other pages it is not part of the site, whose links are checked."""
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 5 and [target for target in links if not (ROOT / target).is_file()] == []
