"""The rules as data: complete, in both languages, documented, and each with a check."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest
from write_plausibility_docs import PAGE, with_table

import flagperf.pages
from flagperf.messages import has_text
from flagperf.metrics.metric import Mark
from flagperf.metrics.registry import ENTRIES
from flagperf.plausibility import Rule, rules
from flagperf.plausibility.apply import CHECKS
from flagperf.plausibility.rule import FIGURES, ROWS
from flagperf.plausibility.together import CHECKS as TOGETHER

PAGES = Path(flagperf.pages.__file__).parent


def test_the_page_lists_the_rules_as_they_are() -> None:
    assert PAGE.read_text() == with_table(PAGE.read_text()), "run `make docs`"


def test_every_rule_that_marks_is_a_mark_and_says_what_it_means() -> None:
    marking = {name for name, rule in rules().items() if rule.effect in ("marked", "refused")}
    assert marking <= set(get_args(Mark))
    assert all(has_text(f"mark.{name}") for name in marking)
    assert all(has_text(f"rule.{name}") for name in rules().keys() - marking)


def test_every_rule_of_runs_is_checked_and_no_other() -> None:
    of_runs = {name for name, rule in rules().items() if {"run", "runs"} & {*rule.of}}
    checked = {name for name, _ in (*CHECKS, *TOGETHER)}
    assert of_runs == checked | {name for name, rule in rules().items() if rule.messages}


def test_every_rule_of_pages_is_checked_and_no_other() -> None:
    said = {
        node.args[0].value
        for path in PAGES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "finding"
        if isinstance(node.args[0], ast.Constant)
    }
    assert said == {name for name, rule in rules().items() if "page" in rule.of}


@pytest.mark.parametrize(("name", "rule"), rules().items())
def test_a_rule_names_metrics_that_exist_and_a_published_mistake(name: str, rule: Rule) -> None:
    assert rule.published
    for pattern in rule.metrics:
        known = [*ENTRIES, FIGURES, ROWS, "*"]
        assert pattern in known or any(each.startswith(pattern.rstrip("*")) for each in ENTRIES), pattern
    assert all(has_text(code) for code in rule.messages)
    assert bool(rule.messages) == (rule.effect == "withheld")
