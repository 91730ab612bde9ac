"""What the comparison says of flagperf itself is counted, and it says when it was written."""

from __future__ import annotations

import re
from pathlib import Path

from flagperf.spec.toml_files import read_toml
from flagperf_cases.operators.groups import OPERATORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
KINDS = [read_toml(path)["kind"] for path in sorted(ROOT.glob("cases/flagperf_cases/*/case.toml"))]
OTHERS = ("FlagPerf", "milabench", "SuperBench", "optimum-benchmark")


def row(title: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_our_own_counts_are_true() -> None:
    models = sum(kind in ("training", "inference") for kind in KINDS)
    said = re.findall(r"\d+", row("what is run")[1])
    assert list(map(int, said)) == [len(KINDS), models, KINDS.count("base"), len(OPERATORS)]
    vendors = len(list(ROOT.glob("plugins/*/pyproject.toml")))
    assert f"adapters for {vendors} vendors" in row("cards")[1]


def test_it_is_dated_and_every_row_has_a_cell_for_each_project() -> None:
    table = PAGE[PAGE.index("| | flagperf |") :].split("\n\n")[0].splitlines()
    assert all(name in table[0] for name in OTHERS) and len(table) > 10
    assert [line for line in table if line.count("|") != table[0].count("|")] == []
    assert re.search(r"\b(?:on|of) 20\d\d-\d\d-\d\d\b", PAGE[: PAGE.index(table[0])])
