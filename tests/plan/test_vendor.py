from __future__ import annotations

import pytest
from plan_builders import node, vendor

from flagperf.api import Presence
from flagperf.errors import BadInput, PluginFailed
from flagperf.plan.placement import choose_vendor, describe_finding

CPU = vendor("cpu")


def note(*vendors: object, asked: str | None = None) -> str:
    return choose_vendor(node(*vendors), asked, ["cpu"]).note


def refusal(*vendors: object, asked: str | None = None, fallbacks: tuple[str, ...] = ("cpu",)) -> str:
    with pytest.raises(BadInput) as caught:
        choose_vendor(node(*vendors), asked, fallbacks)
    return str(caught.value)


# Asked for


def test_the_vendor_that_is_asked_for_is_taken_whatever_else_is_present() -> None:
    choice = choose_vendor(node(CPU, vendor("acme"), vendor("beta")), "beta", ["cpu"])
    assert (choice.facts.vendor, choice.note) == ("beta", "beta")


@pytest.mark.parametrize("state", ["absent", "partial", "error"])
def test_the_cpu_that_is_asked_for_is_taken_whatever_the_others_found(state: str) -> None:
    assert note(CPU, vendor("acme", state), asked="cpu") == "cpu"


@pytest.mark.parametrize(
    ("state", "finding"),
    [
        ("absent", "looked for /dev/acme*"),
        ("partial", "acme on the bus; no node"),
        ("error", "its adapter flagperf-acme 1.0 failed: OSError: tool broke"),
        ("unasked", "not searched for"),
    ],
)
def test_an_unusable_vendor_that_is_asked_for_says_what_was_found(state: str, finding: str) -> None:
    message = refusal(CPU, vendor("acme", state), asked="acme")
    assert message == f"--vendor acme: no usable card on host1. {finding}"


def test_what_the_user_can_mend_is_not_called_a_failure_of_the_adapter() -> None:
    mistaken = vendor("acme", "error", error="A=0 and B=1 disagree: set them equal")
    assert refusal(CPU, mistaken, asked="acme").endswith("on host1. A=0 and B=1 disagree: set them equal")
    assert "acme: A=0 and B=1 disagree: set them equal. Repair it" in refusal(CPU, mistaken)


def test_an_adapter_that_failed_is_the_cause_where_its_vendor_is_asked_for() -> None:
    failed = vendor("acme", "error", error="its adapter flagperf-acme 1.0 failed: OSError: tool broke", has_failed=True)
    with pytest.raises(PluginFailed, match=r"on host1: its adapter flagperf-acme 1\.0 failed: OSError: tool broke$"):
        choose_vendor(node(CPU, failed), "acme", ["cpu"])


def test_cards_whose_adapter_raised_later_are_not_usable() -> None:
    broken = vendor("acme", "present", error="OSError: versions")
    assert "OSError: versions" in refusal(CPU, broken, asked="acme")


# Unasked


def test_the_one_that_is_present_is_taken_and_the_cpu_is_not_counted() -> None:
    assert note(CPU, vendor("acme"), vendor("beta", "absent")) == "acme"


def test_several_that_are_present_are_a_question_to_the_user() -> None:
    message = refusal(CPU, vendor("acme"), vendor("beta"))
    assert message == "cards of several vendors are present (acme, beta); choose one with --vendor"


def test_clean_absence_everywhere_takes_the_cpu_and_names_all_who_looked() -> None:
    assert note(CPU, vendor("beta", "absent"), vendor("acme", "absent")) == "cpu (no accelerator found by: acme, beta)"


def test_without_adapters_the_cpu_is_taken_and_that_is_said() -> None:
    assert note(CPU) == "cpu (no vendor adapter is installed)"


@pytest.mark.parametrize("state", ["partial", "error", "unasked"])
@pytest.mark.parametrize("other", ["absent", "present"])
def test_unclear_evidence_stops_even_beside_a_good_card(state: str, other: str) -> None:
    message = refusal(CPU, vendor("acme", state), vendor("beta", other))
    assert message.startswith("cannot tell which vendor to use. acme: ")
    assert "or use --vendor cpu" in message


def test_all_unclear_findings_are_told() -> None:
    message = refusal(CPU, vendor("acme", "partial"), vendor("beta", "error"))
    assert "acme: acme on the bus; no node; beta: its adapter flagperf-beta 1.0 failed" in message


def test_an_adapter_that_raised_after_finding_a_card_is_unclear() -> None:
    assert "OSError: late" in refusal(CPU, vendor("acme", "present", error="OSError: late"))


def test_without_a_fallback_there_is_no_vendor() -> None:
    message = refusal(vendor("acme", "absent"), fallbacks=())
    assert message == "no installed adapter finds a card here; see `flagperf vendors list`"


# The words


@pytest.mark.parametrize(
    ("presence", "words"),
    [
        (Presence("present", ("a", "b")), "a; b"),
        (Presence("absent"), "absent"),
        (Presence("partial", ("a",), "b"), "a; b"),
        (Presence("absent", reason="looked for c"), "looked for c"),
    ],
)
def test_a_finding_is_its_evidence_then_its_reason_or_just_the_state(presence: Presence, words: str) -> None:
    assert describe_finding(vendor("acme", presence=presence)) == words
