"""`cases show`: published results where there are any."""

from __future__ import annotations

import msgspec
import pytest

from flagperf.cli import cases as module
from flagperf.cli import run_cli
from flagperf.plugins import load_plugins


def test_published_figures_are_shown_as_a_table_and_rows_without_any_are_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["cases", "show", "distilbert"]) == 0
    lines = capfd.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith("nvidia A100-SXM4-40GB 2x8")]
    assert row[3:] == ["fp32", "bs=96", "58.9", "3531.1", "3892.3", "4058.3", "0.911", "32.9/40.0"]
    assert lines[-1] == "Published without figures: kunlun R300-32GB 1x1, kunlun R300-32GB 2x8"


def test_a_case_of_which_nothing_is_published_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    case = load_plugins().case("distilbert")
    bare = msgspec.structs.replace(case, manifest=msgspec.structs.replace(case.manifest, references=()))
    module._show_references(bare)
    assert "Published results: none" in capfd.readouterr().out
