"""The entries of rules: in both languages, documented, and each with a check."""

from __future__ import annotations

import inspect

import pytest
from write_plausibility_docs import PAGE, RULES, with_table

from flagperf.messages import has_text
from flagperf.metrics.registry import ENTRIES
from flagperf.plausibility.doubts import BETWEEN, CHECKS
from flagperf.plausibility.rules import FIGURES, ROWS, Rule
from flagperf_publish.published import findings, hardware_pages, page_lint, result_checks


def test_the_page_lists_the_rules_as_they_are() -> None:
    assert PAGE.read_text() == with_table(PAGE.read_text()), "run `make docs`"


def test_every_rule_says_what_it_means_and_no_two_have_one_name() -> None:
    marking = {name for name, rule in RULES.items() if rule.effect in ("marked", "refused")}
    assert all(has_text(f"mark.{name}") for name in marking)
    assert all(has_text(f"rule.{name}") for name in RULES.keys() - marking)
    checked = {id(rule): rule for rule, _ in (*CHECKS, *BETWEEN)}.values()
    assert len({rule.name for rule in checked}) == len(checked)


def test_every_rule_of_runs_is_checked_and_no_other() -> None:
    checked = {rule.name: rule for rule, _ in (*CHECKS, *BETWEEN)}
    assert checked == {name: rule for name, rule in RULES.items() if {"run", "runs"} & {*rule.of}}


def test_every_rule_of_pages_is_checked_and_no_other() -> None:
    source = "".join(map(inspect.getsource, (findings, result_checks, hardware_pages, page_lint)))
    said = {name for name in RULES if f"finding({name.upper()}," in "".join(source.split())}
    assert said == {name for name, rule in RULES.items() if "page" in rule.of}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_rule_names_metrics_that_exist_and_a_published_mistake(rule: Rule) -> None:
    assert rule.published
    for pattern in rule.metrics:
        known = [*ENTRIES, FIGURES, ROWS, "*"]
        assert pattern in known or any(each.startswith(pattern.rstrip("*")) for each in ENTRIES), pattern
    assert all(has_text(code) for code in rule.messages)
    assert bool(rule.messages) == (rule.effect == "withheld")
