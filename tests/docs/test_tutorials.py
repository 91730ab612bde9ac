"""The tutorials do what they say: their commands are run in order. Those for vendors: test_add_a_vendor.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_reader import DOCS, SHORT, Reader, commands, fenced

TRANSLATED = [path.relative_to(DOCS / "zh").as_posix() for path in sorted((DOCS / "zh").rglob("*.md"))]


@pytest.mark.run
@pytest.mark.full
def test_a_buyer_measures_compares_passes_on_and_checks(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "flagperf.toml").write_text(SHORT)
    said = reader.types_all(commands("tutorials/buyer.md"))
    assert "verified: " in said["flagperf runs verify latest"]
    assert "<svg" in (tmp_path / "result.html").read_text()
    assert "training.batch_size" in said["flagperf compare group-"] and " / A" in said["flagperf compare group-"]
    (published,) = (output for command, output in said.items() if " published:" in command)
    assert "Not comparable" in published
    (sent,) = (tmp_path / "received").iterdir()
    assert (tmp_path / "runs" / sent.name).is_dir()


@pytest.mark.run
@pytest.mark.full
def test_a_case_author_writes_a_case_that_is_measured(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.writes_the_files("tutorials/case-author.md")
    said = reader.types_all(commands("tutorials/case-author.md"))
    assert "Sorting random numbers" in said["flagperf cases show sorting"]
    (bundle,) = (tmp_path / "runs").iterdir()
    metrics = {metric["name"]: metric for metric in json.loads((bundle / "run.json").read_text())["metrics"]}
    assert metrics["sorted_bytes"]["value"] > 0
    assert "every number is at least as large" in said["flagperf report latest --format csv"]


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translated_page_has_the_same_commands(page: str) -> None:
    assert fenced(f"zh/{page}", "sh") == fenced(page, "sh")
