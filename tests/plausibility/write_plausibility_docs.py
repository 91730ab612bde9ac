"""Writes the table of docs/plausibility.md from the rules and the catalogue, so that the two cannot differ."""

from __future__ import annotations

import re
from pathlib import Path

from flagperf.messages import has_text, template
from flagperf.plausibility import Rule, rules

PAGE = Path(__file__).parents[2] / "docs" / "plausibility.md"
TABLE = re.compile(r"(?<=<!-- Written by `make docs` from here on. -->\n).*?(?=<!-- to here -->)", re.DOTALL)


def with_table(page: str) -> str:
    return TABLE.sub(lambda _: f"\n{_table()}\n", page)


def _table() -> str:
    head = ["| rule | meaning | of | effect | metrics | limits | published mistake |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(name, rule) for name, rule in rules().items()), ""])


def _row(name: str, rule: Rule) -> str:
    meaning = template(f"mark.{name}" if has_text(f"mark.{name}") else f"rule.{name}", "en")
    metrics = ", ".join(rule.metrics).replace("*", "\\*")
    limits = ", ".join(f"{limit} {value:g}" for limit, value in rule.limits.items())
    cells = (f"`{name}`", meaning, ", ".join(rule.of), rule.effect, metrics, limits, rule.published)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
