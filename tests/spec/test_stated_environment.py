"""The facts that a machine's owner states, and what a node's facts are called."""

from __future__ import annotations

import pytest

from flagperf.errors import BadInput
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, Environment, Fact, VendorFacts, state_environment

CAPTURED = Environment(
    facts={
        **{name: Fact(None, "absent", f"{name}: not found") for name in ENVIRONMENT_FACTS},
        "os": Fact("Ubuntu 22.04.3 LTS"),
        "container": Fact("none"),
    },
    packages={"accelerate": "0.30.1"},
    variables={"OMP_NUM_THREADS": "8"},
)


def test_an_absent_fact_is_filled_and_keeps_why_it_was_absent() -> None:
    before = dict(CAPTURED.facts)
    assert state_environment(CAPTURED, {}, "flagperf.toml") == CAPTURED
    stated = state_environment(CAPTURED, {"network": "  InfiniBand,\n 2 x 200 Gb/s\n"}, "flagperf.toml")
    network = Fact("InfiniBand, 2 x 200 Gb/s", "stated", "network: not found")
    assert (stated.facts, list(stated.facts)) == ({**before, "network": network}, list(before))
    assert (stated.packages, stated.variables) == (CAPTURED.packages, CAPTURED.variables)
    assert CAPTURED.facts == before
    older = Environment(facts={}, packages={}, variables={})
    assert state_environment(older, {"docker": "24.0.7"}, "x.toml").facts == {"docker": Fact("24.0.7", "stated")}


def test_every_fact_can_be_stated_and_a_captured_one_stays_and_says_so() -> None:
    stated = state_environment(CAPTURED, {name: f"my {name}" for name in ENVIRONMENT_FACTS}, "flagperf.toml")
    how = {name: fact.how for name, fact in stated.facts.items()}
    assert how == {name: "captured" if name in ("os", "container") else "stated" for name in ENVIRONMENT_FACTS}
    ignored = "stated value 'my os' was not used: captured"
    assert stated.facts["os"] == Fact("Ubuntu 22.04.3 LTS", "captured", ignored)


@pytest.mark.parametrize("value", ["", " \n", 5, True, None, ["Ethernet"], {"speed": "25 Gb/s"}])
@pytest.mark.parametrize("key", ["network", "os"])
def test_a_value_that_is_no_text_is_refused_with_its_place(key: str, value: object) -> None:
    with pytest.raises(BadInput) as caught:
        state_environment(CAPTURED, {key: value}, "site/flagperf.toml")
    expected = f"[environment] {key} in site/flagperf.toml must be a non-empty string; got {value!r}"
    assert str(caught.value) == expected


def test_simulated_cards_are_always_called_that() -> None:
    assert VendorFacts("acme", "flagperf-acme 1.0", None, simulated=True).shown_vendor == "acme (simulated)"
    assert VendorFacts("acme", "flagperf-acme 1.0", None).shown_vendor == "acme"
