from __future__ import annotations

from flagperf.spec.node_facts import VendorFacts


def test_simulated_cards_are_always_called_that() -> None:
    assert VendorFacts("acme", "flagperf-acme 1.0", None, simulated=True).shown_vendor == "acme (simulated)"
    assert VendorFacts("acme", "flagperf-acme 1.0", None).shown_vendor == "acme"
