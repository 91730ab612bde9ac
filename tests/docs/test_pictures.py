"""The pictures of README and start page are real, true and small, and fetch nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from write_pictures import PICTURES, ROOT, badges, terminal

TEXTS = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "zh" / "index.md"]


def test_the_terminal_shows_what_flagperf_prints_today() -> None:
    assert (PICTURES / "terminal.svg").read_text() == terminal(), "run `make pictures`"


def test_badges_say_what_the_metadata_says() -> None:
    assert {name: (PICTURES / name).read_text() for name in badges()} == badges(), "run `make pictures`"


def test_pictures_fetch_nothing_and_are_small() -> None:
    for path in PICTURES.glob("*.svg"):
        assert re.findall(r"url\(\s*[\"']?http|href=\"http|<script|@import", path.read_text()) == [], path.name
    assert [path.name for path in PICTURES.iterdir() if path.stat().st_size > 150_000] == []
    assert sum(path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.is_file()) < 1_500_000


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_picture_and_file_that_is_linked_exists_and_pictures_are_described(text: Path) -> None:
    links = re.findall(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(?:#[^)]*)?\)", text.read_text(encoding="utf-8"))
    assert len(links) > 5
    assert [target for _, _, target in links if not (text.parent / target).is_file()] == []
    assert [target for mark, words, target in links if mark and not words] == []


def test_every_picture_is_shown_somewhere() -> None:
    shown = " ".join(path.read_text(encoding="utf-8") for path in TEXTS)
    assert [path.name for path in PICTURES.iterdir() if f"pictures/{path.name}" not in shown] == []
