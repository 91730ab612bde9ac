import pytest

from flagperf.errors import BadInput
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, Environment, Fact, state_environment

CAPTURED = Environment(
    facts={
        **{name: Fact(None, "absent", f"{name}: not found") for name in ENVIRONMENT_FACTS},
        "os": Fact("Ubuntu 22.04.3 LTS"),
        "container": Fact("none"),
    },
    packages={"accelerate": "0.30.1"},
    variables={"OMP_NUM_THREADS": "8"},
)


def test_nothing_stated_changes_nothing() -> None:
    assert state_environment(CAPTURED, {}, "flagperf.toml") == CAPTURED


def test_a_stated_value_fills_an_absent_fact_and_keeps_why_it_was_absent() -> None:
    stated = state_environment(CAPTURED, {"network": "InfiniBand, 2 x 200 Gb/s"}, "flagperf.toml")
    assert stated.facts["network"] == Fact("InfiniBand, 2 x 200 Gb/s", "stated", "network: not found")
    assert stated.facts["machine"] == CAPTURED.facts["machine"]
    assert (stated.packages, stated.variables) == (CAPTURED.packages, CAPTURED.variables)
    assert tuple(stated.facts) == tuple(CAPTURED.facts)


@pytest.mark.parametrize("name", ["os", "container"])
def test_a_captured_fact_stays_and_says_so(name: str) -> None:
    stated = state_environment(CAPTURED, {name: "CentOS 7.6"}, "flagperf.toml")
    value = CAPTURED.facts[name].value
    assert stated.facts[name] == Fact(value, "captured", "stated value 'CentOS 7.6' was not used: captured")


def test_every_fact_can_be_stated() -> None:
    stated = state_environment(CAPTURED, {name: f"my {name}" for name in ENVIRONMENT_FACTS}, "flagperf.toml")
    how = {name: fact.how for name, fact in stated.facts.items()}
    assert how == {name: "captured" if name in ("os", "container") else "stated" for name in ENVIRONMENT_FACTS}


def test_a_fact_that_an_older_record_lacks_can_be_stated() -> None:
    older = Environment(facts={}, packages={}, variables={})
    assert state_environment(older, {"docker": "24.0.7"}, "x.toml").facts == {"docker": Fact("24.0.7", "stated")}


def test_a_text_of_several_lines_becomes_one() -> None:
    stated = state_environment(CAPTURED, {"machine": "  Inspur\n   NF5688M6\n"}, "flagperf.toml")
    assert stated.facts["machine"].value == "Inspur NF5688M6"


def test_stating_twice_takes_the_later_value() -> None:
    once = state_environment(CAPTURED, {"docker": "23"}, "flagperf.toml")
    assert state_environment(once, {"docker": "24"}, "other.toml").facts["docker"].value == "24"


def test_the_given_environment_is_not_changed() -> None:
    before = dict(CAPTURED.facts)
    state_environment(CAPTURED, {"machine": "Inspur NF5688M6", "os": "other"}, "flagperf.toml")
    assert CAPTURED.facts == before


def test_an_unknown_key_is_named_with_its_file_and_near_matches() -> None:
    with pytest.raises(BadInput) as caught:
        state_environment(CAPTURED, {"netwrk": "Ethernet"}, "site/flagperf.toml")
    message = str(caught.value)
    assert message.startswith("unknown key in [environment] 'netwrk'; did you mean network")
    assert message.endswith("(site/flagperf.toml)")


@pytest.mark.parametrize("key", ["packages", "variables"])
def test_only_facts_can_be_stated(key: str) -> None:
    with pytest.raises(BadInput, match=f"unknown key in .environment. '{key}'"):
        state_environment(CAPTURED, {key: "x"}, "flagperf.toml")


@pytest.mark.parametrize("value", ["", " \n", 5, True, None, ["Ethernet"], {"speed": "25 Gb/s"}])
@pytest.mark.parametrize("key", ["network", "os"])
def test_a_value_that_is_no_text_is_refused_with_its_place(key: str, value: object) -> None:
    with pytest.raises(BadInput) as caught:
        state_environment(CAPTURED, {key: value}, "site/flagperf.toml")
    expected = f"[environment] {key} in site/flagperf.toml must be a non-empty string; got {value!r}"
    assert str(caught.value) == expected
