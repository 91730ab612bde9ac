"""`cases show`: published results where there are any."""

from __future__ import annotations

import pytest

from flagperf.cli import run_cli


def test_published_figures_are_shown_as_a_table_and_rows_without_any_are_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["cases", "show", "distilbert"]) == 0
    lines = capfd.readouterr().out.splitlines()
    (row,) = [line.partition("(2x8)")[2].split() for line in lines if line.startswith("nvidia A100-SXM4-40GB, 2 nodes")]
    assert row == ["fp32", "bs=96", "58.9", "3531.1", "3892.3", "4058.3", "0.911", "32.9/40.0"]
    assert lines[-1] == "Published without figures: kunlun R300-32GB 1x1, kunlun R300-32GB 2x8"


def test_a_case_that_lists_its_contents_shows_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["cases", "show", "operators"]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["softmax", "normalisation", "yes", "fp32", "fp16", "bf16", "forward", "backward", "GB/s"] in lines
    assert ["mm", "published", "m=8192", "n=8192", "k=8192"] in lines
