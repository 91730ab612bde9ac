"""What the comparison says of flagperf itself is counted, and it says when it was written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flagperf.spec.toml_files import read_toml
from flagperf_cases.operators.groups import OPERATORS

ROOT = Path(__file__).parents[2]
PAGE, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/comparison.md", "README.md"))
KINDS = [read_toml(path)["kind"] for path in sorted(ROOT.glob("cases/flagperf_cases/*/case.toml"))]
OTHERS = ("FlagPerf", "milabench", "SuperBench", "optimum-benchmark")


def row(text: str, title: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_our_own_counts_are_true() -> None:
    models = sum(kind in ("training", "inference") for kind in KINDS)
    said = re.findall(r"\d+", row(PAGE, "what is run")[1])
    assert list(map(int, said)) == [len(KINDS), models, KINDS.count("base"), len(OPERATORS)]
    assert row(README, "models")[1].startswith(f"**{models}**")
    vendors = len(list(ROOT.glob("plugins/*/pyproject.toml")))
    assert f"adapters for {vendors} vendors" in row(PAGE, "cards")[1]
    assert row(README, "vendors of cards")[1].startswith(f"{vendors} and the CPU")


@pytest.mark.parametrize("text", [PAGE, README], ids=["docs/comparison.md", "README.md"])
def test_it_is_dated_and_every_row_has_a_cell_for_each_project(text: str) -> None:
    table = text[text.index("| | flagperf |") :].split("\n\n")[0].splitlines()
    assert all(name in table[0] for name in OTHERS) and len(table) > 10
    assert [line for line in table if line.count("|") != table[0].count("|")] == []
    assert re.search(r"\b(?:on|of) 20\d\d-\d\d-\d\d\b", text[: text.index(table[0])])
