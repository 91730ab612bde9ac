from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagperf.errors import BadInput
from flagperf.spec.values import Layer, Limit, Resolved, flatten, nest, page_name, parse_assignment, resolve
from run_builders import minimal_manifest

VALUES: dict[str, Any] = {
    "precision": "fp32",
    "training": {"batch_size": 32, "learning_rate": 0.1, "shuffle": True, "optimizer": "adamw", "epochs": 3},
    "evaluation": {"target": 0.9},
    "data": {"splits": ["train", "test"], "rows": 100},
}
LIMITS = {
    "training.optimizer": Limit(choices=("adamw", "sgd")),
    "evaluation.target": Limit(min=0, max=1),
    "data.rows": Limit(above=0, max=1000),
}
MANIFEST = minimal_manifest(values=VALUES, limits=LIMITS, page_names={"data.rows": "n"})


def resolved(key: str, value: Any, layer: str = "--set") -> Resolved:
    return resolve(MANIFEST, [Layer(layer, nest({key: value}), source="user")])


def value_of(key: str, value: Any) -> Any:
    return dict(flatten(resolved(key, value).values))[key]


def refusal(key: str, value: Any) -> str:
    with pytest.raises(BadInput) as caught:
        resolved(key, value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("training.batch_size=8", ("training.batch_size", 8)),
        (" training.batch_size = 8 ", ("training.batch_size", 8)),
        ("lr=1e-4", ("lr", 1e-4)),
        ("lr=5", ("lr", 5)),
        ("shuffle=true", ("shuffle", True)),
        ("optimizer=sgd", ("optimizer", "sgd")),
        ('optimizer="sgd"', ("optimizer", "sgd")),
        ("path=/data/a=b", ("path", "/data/a=b")),
        ('splits=["a", "b"]', ("splits", ["a", "b"])),
        ("name='true'", ("name", "true")),
        ("rows=1_000", ("rows", 1000)),
        ("shuffle=True", ("shuffle", "True")),
        ("date=hello # no comment", ("date", "hello # no comment")),
        ("time=01:30:00", ("time", "01:30:00")),
        ("day=2026-11-17", ("day", "2026-11-17")),
    ],
)
def test_an_assignment_is_a_key_and_a_toml_value_or_a_bare_word(text: str, pair: tuple[str, Any]) -> None:
    key, value = parse_assignment(text)
    assert (key, value) == pair
    assert type(value) is type(pair[1])


@pytest.mark.parametrize("text", ["training.batch_size", "=8", "training.batch_size=", "", "  =  ", "a = ", "a=1\nb=2"])
def test_what_is_no_assignment_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_assignment(text)
    assert str(caught.value) == f"--set takes key=value, for example training.batch_size=8; got {text!r}"


@given(st.text(max_size=30))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    with contextlib.suppress(BadInput):
        parse_assignment(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training.batch_size", 64),
        ("training.shuffle", False),
        ("data.splits", ["train"]),
        # a limit itself is within it
        ("training.batch_size", 1),
        ("evaluation.target", 0.0),
        ("evaluation.target", 1.0),
        ("data.rows", 1000),
    ],
)
def test_a_value_of_the_defaults_type_within_its_limits_is_taken(key: str, value: Any) -> None:
    assert (value_of(key, value), type(value_of(key, value))) == (value, type(value))


def test_a_whole_number_is_fine_where_a_number_is_asked_for() -> None:
    value = value_of("training.learning_rate", 1)
    assert (value, type(value)) == (1.0, float)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.batch_size", 1.5, "takes a whole number, for example 32; got 1.5 (a finite number) from --set"),
        ("training.batch_size", "8", "takes a whole number, for example 32; got '8' (a string) from --set"),
        ("training.batch_size", True, "takes a whole number, for example 32; got True (true or false) from --set"),
        ("training.learning_rate", True, "takes a finite number, for example 0.1; got True (true or false) from --set"),
        ("training.learning_rate", "fast", "takes a finite number, for example 0.1; got 'fast' (a string) from --set"),
        ("training.shuffle", 1, "takes true or false, for example True; got 1 (a whole number) from --set"),
        ("training.optimizer", 3, "takes a string, for example 'adamw'; got 3 (a whole number) from --set"),
        ("data.splits", "train", "takes a list, for example ['train', 'test']; got 'train' (a string) from --set"),
    ],
)
def test_another_type_is_refused_with_an_example(key: str, value: Any, message: str) -> None:
    assert refusal(key, value) == f"{key} {message}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("data.splits", value) for value in ([1, 2], ["train", 3], [["train"]])),
        # JSON has no such numbers: what is not refused here reaches the worker as null
        *(("training.learning_rate", float(word)) for word in ("nan", "inf", "-inf")),
    ],
)
def test_a_list_holds_what_the_default_holds_and_a_number_is_finite(key: str, value: Any) -> None:
    assert key in refusal(key, value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("training.batch_size", 0, "at least 1"),
        ("training.batch_size", -5, "at least 1"),
        ("training.learning_rate", 0, "above 0"),
        ("training.learning_rate", -0.1, "above 0"),
        ("evaluation.target", 1.01, "at most 1"),
        ("evaluation.target", -0.01, "at least 0"),
        ("data.rows", 0, "above 0"),
        ("data.rows", 1001, "at most 1000"),
        ("training.optimizer", "adam", "one of adamw, sgd"),
        ("training.epochs", 0, "at least 1"),
    ],
)
def test_a_value_outside_its_limits_is_refused(key: str, value: Any, problem: str) -> None:
    assert refusal(key, value).startswith(f"{key} must be {problem}; got {float(value) if key in FLOATS else value!r}")


FLOATS = ("training.learning_rate", "evaluation.target")


def test_the_cases_limit_goes_before_the_shared_one() -> None:
    own = msgspec.structs.replace(MANIFEST, limits={"training.batch_size": Limit(max=16)})
    with pytest.raises(BadInput, match="at most 16"):
        resolve(own, [Layer("--set", {"training": {"batch_size": 17}})])


def test_an_unknown_key_comes_with_near_matches_its_layer_and_where_to_look() -> None:
    with pytest.raises(BadInput) as caught:
        resolved("training.batchsize", 8, layer="file my.toml")
    message = str(caught.value)
    assert message.startswith("unknown key of case demo 'training.batchsize'; did you mean training.batch_size")
    assert message.endswith("(file my.toml; `flagperf cases show demo` lists all keys)")
    assert "'xyzzy'; known: data.rows, data.splits" in refusal("xyzzy", 1)


def test_a_group_is_no_value_and_a_value_no_group() -> None:
    message = refusal("data", 3)
    assert message.startswith("'data' is a group of keys, not a value: data.splits, data.rows (--set; ")
    assert "unknown key of case demo 'precision.name'" in refusal("precision.name", "fp32")


def test_defaults_alone_are_the_cases_and_stay_as_they_are() -> None:
    before = msgspec.json.encode(MANIFEST.values)
    empty_group = Layer("file", {"training": {}}, source="user")
    for layers in ([], [empty_group]):
        found = resolve(MANIFEST, layers)
        assert (found.values, found.deviations, set(found.layers.values())) == (VALUES, {}, {"case"})
    resolved("training.batch_size", 1)
    assert msgspec.json.encode(MANIFEST.values) == before


def test_a_profile_sets_the_standard_and_what_comes_after_deviates() -> None:
    layers = [
        Layer("profile tiny", {"training": {"epochs": 1, "batch_size": 4}}),
        Layer("tuning", {"training": {"batch_size": 8}}, source="vendor"),
        Layer("--set", {"training": {"batch_size": 4, "epochs": 2}}, source="user"),
    ]
    found = resolve(MANIFEST, layers)
    assert found.values["training"]["batch_size"] == 4
    assert found.deviations == {"training.epochs": "--set"}
    assert found.layers["training.batch_size"] == "--set"


TREES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), inner, min_size=1, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), TREES, max_size=4))
def test_a_tree_comes_back_from_its_flat_form(tree: dict[str, Any]) -> None:
    assert nest(dict(flatten(tree))) == tree


@pytest.mark.parametrize(
    ("key", "name"), [("data.rows", "n"), ("training.batch_size", "bs"), ("training.epochs", "training.epochs")]
)
def test_a_key_has_its_name_on_pages(key: str, name: str) -> None:
    assert page_name(MANIFEST, key) == name
