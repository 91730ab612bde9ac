"""Writes the table of docs/plausibility.md from the entries and the catalogue, so that they cannot differ."""

from __future__ import annotations

import re
from pathlib import Path

from flagperf.messages import has_text, template
from flagperf.plausibility import doubts, row_checks, run_checks
from flagperf.plausibility.rules import Rule
from flagperf_publish.published import hardware_pages, page_lint, result_checks

PAGE = Path(__file__).parents[2] / "docs" / "plausibility.md"
RULES = {
    rule.name: rule
    for module in (row_checks, run_checks, doubts, result_checks, page_lint, hardware_pages)
    for rule in (*vars(module).values(), *vars(module).get("WITHHELD", ()))
    if isinstance(rule, Rule)
}
"""All entries, in the order of the modules."""
TABLE = re.compile(r"(?<=<!-- Written by `make docs` from here on. -->\n).*?(?=<!-- to here -->)", re.DOTALL)


def with_table(page: str) -> str:
    return TABLE.sub(lambda _: f"\n{_table()}\n", page)


def _table() -> str:
    head = ["| rule | meaning | of | effect | metrics | limits | published mistake |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, RULES.values()), ""])


def _row(rule: Rule) -> str:
    meaning = template(f"mark.{rule.name}" if has_text(f"mark.{rule.name}") else f"rule.{rule.name}", "en")
    metrics = ", ".join(rule.metrics).replace("*", "\\*")
    limits = ", ".join(f"{limit} {value:g}" for limit, value in rule.limits.items())
    cells = (f"`{rule.name}`", meaning, ", ".join(rule.of), rule.effect, metrics, limits, rule.published)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
