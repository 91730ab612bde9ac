from __future__ import annotations

import pytest
from plan_builders import node, vendor

from flagperf.api import Presence
from flagperf.errors import BadInput, PluginFailed
from flagperf.plan.placement import choose_vendor, describe_finding

CPU = vendor("cpu")
ACME, BETA = vendor("acme"), vendor("beta")
LATE = vendor("acme", error="OSError: late")
"""An adapter that raised after it had found a card."""
MISTAKEN = vendor("acme", "error", error="A=0 and B=1 disagree: set them equal")


@pytest.mark.parametrize(
    ("vendors", "asked", "chosen", "note"),
    [
        ([CPU, ACME, BETA], "beta", "beta", "beta"),
        ([CPU, vendor("acme", "absent")], "cpu", "cpu", "cpu"),
        ([CPU, vendor("acme", "partial")], "cpu", "cpu", "cpu"),
        ([CPU, vendor("acme", "error")], "cpu", "cpu", "cpu"),
        ([CPU, ACME, vendor("beta", "absent")], None, "acme", "acme"),
        ([CPU, vendor("beta", "absent"), vendor("acme", "absent")], None, "cpu",
         "cpu (no accelerator found by: acme, beta)"),
        ([CPU], None, "cpu", "cpu (no vendor adapter is installed)"),
    ],
)  # fmt: skip
def test_the_vendor_that_is_asked_for_or_alone_is_taken_else_the_cpu(
    vendors: list[object], asked: str | None, chosen: str, note: str
) -> None:
    choice = choose_vendor(node(*vendors), asked, ["cpu"])
    assert (choice.facts.vendor, choice.note) == (chosen, note)


UNUSABLE = "--vendor acme: no usable card on host1. "


@pytest.mark.parametrize(
    ("vendors", "asked", "words"),
    [
        ([CPU, vendor("acme", "absent")], "acme", UNUSABLE + "looked for /dev/acme*"),
        ([CPU, vendor("acme", "partial")], "acme", UNUSABLE + "acme on the bus; no node"),
        ([CPU, vendor("acme", "error")], "acme", UNUSABLE + "its adapter flagperf-acme 1.0 failed: OSError"),
        ([CPU, vendor("acme", "unasked")], "acme", UNUSABLE + "not searched for"),
        ([CPU, MISTAKEN], "acme", UNUSABLE + "A=0 and B=1 disagree: set them equal"),
        ([CPU, LATE], "acme", UNUSABLE + "OSError: late"),
        ([CPU, ACME, BETA], None, "cards of several vendors are present (acme, beta); choose one with --vendor"),
        ([CPU, MISTAKEN], None, "acme: A=0 and B=1 disagree: set them equal. Repair it, or use --vendor cpu"),
        ([CPU, LATE], None, "cannot tell which vendor to use. acme: OSError: late. Repair it, or use --vendor cpu"),
        ([CPU, vendor("acme", "partial"), vendor("beta", "error")], None,
         "acme: acme on the bus; no node; beta: its adapter flagperf-beta 1.0 failed"),
        *(
            ([CPU, vendor("acme", state), vendor("beta", other)], None, "cannot tell which vendor to use. acme: ")
            for state in ("partial", "error", "unasked") for other in ("absent", "present")
        ),
    ],
)  # fmt: skip
def test_what_is_not_clear_or_not_usable_is_told(vendors: list[object], asked: str | None, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        choose_vendor(node(*vendors), asked, ["cpu"])
    assert words in str(caught.value)


def test_an_adapter_that_failed_is_the_cause_where_its_vendor_is_asked_for() -> None:
    failed = vendor("acme", "error", error="its adapter flagperf-acme 1.0 failed: OSError: tool broke", has_failed=True)
    with pytest.raises(PluginFailed, match=r"on host1: its adapter flagperf-acme 1\.0 failed: OSError: tool broke$"):
        choose_vendor(node(CPU, failed), "acme", ["cpu"])


def test_without_a_fallback_there_is_no_vendor() -> None:
    with pytest.raises(BadInput, match=r"^no installed adapter finds a card here; see `flagperf vendors list`$"):
        choose_vendor(node(vendor("acme", "absent")), None, ())


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
