from __future__ import annotations

from typing import Any

import pytest
from plan_builders import manifest

from flagperf.api import precision
from flagperf.errors import BadInput, Unsupported
from flagperf.plan.settings import (
    make_settings,
    published_profile,
    refuse_unsupported,
    resolve_values,
)
from flagperf.spec.job import RunSpec
from flagperf.spec.user_file import UserFile
from flagperf.spec.values import Layer, Resolved
from minimal_backend import MinimalBackend

TUNING = Layer("tuning acme A1 (note)", {"training": {"batch_size": 64, "learning_rate": 0.2}}, source="vendor")
NO_FILE = UserFile()
FILE = UserFile(cases={"toy": {"training": {"batch_size": 96}}}, path="flagperf.toml")


def resolved(*assignments: str, user_file: UserFile = NO_FILE, tuning: Layer | None = None, **spec: Any) -> Resolved:
    return resolve_values(RunSpec("toy", set=assignments, **spec), manifest(), user_file, tuning)


def test_a_case_for_several_devices_is_refused_on_fewer_whatever_the_nodes() -> None:
    needs_four = manifest(min_devices=4)
    with pytest.raises(BadInput, match="case toy needs at least 4 devices, and --nodes 1 x --devices 2 is 2; give"):
        resolve_values(RunSpec("toy", devices=2), needs_four, NO_FILE, None)
    assert resolve_values(RunSpec("toy", nodes=2, devices=2), needs_four, NO_FILE, None)


def test_each_layer_goes_before_the_one_below_it() -> None:
    layers = [
        resolved(),
        resolved(tuning=TUNING),
        resolved(tuning=TUNING, user_file=FILE),
        resolved("training.batch_size=128", tuning=TUNING, user_file=FILE),
    ]
    assert [config.values["training"]["batch_size"] for config in layers] == [32, 64, 96, 128]
    assert layers[0].values["training"]["epochs"] == 1 and layers[0].deviations == {}
    other = UserFile(cases={"other": {"training": {"batch_size": 1}}}, path="flagperf.toml")
    assert resolved(user_file=other) == layers[0]


def test_every_value_names_the_last_layer_that_set_it_and_deviations_those_after_the_profile() -> None:
    config = resolved("training.epochs=2", tuning=TUNING, user_file=FILE)
    changed = {
        "training.batch_size": "file flagperf.toml",
        "training.learning_rate": "tuning acme A1 (note)",
        "training.epochs": "--set",
    }
    unchanged = dict.fromkeys(("precision", "training.shuffle", "training.optimizer", "data.splits"), "case")
    assert (config.layers, config.deviations) == ({**unchanged, **changed}, changed)
    assert resolved().layers["training.epochs"] == "profile tiny"


def test_a_deviation_is_another_value_than_that_of_case_and_profile() -> None:
    config = resolved("training.epochs=1", "training.batch_size=32")
    assert (config.deviations, config.layers["training.batch_size"]) == ({}, "--set")
    assert resolved("training.epochs=3").deviations == {"training.epochs": "--set"}


def test_the_precision_option_goes_before_all() -> None:
    config = resolved("precision=fp32", precision="bf16")
    assert (config.values["precision"], config.layers["precision"]) == ("bf16", "--precision")
    assert config.deviations == {"precision": "--precision"}


def test_a_wrong_key_names_its_layer_and_near_matches() -> None:
    tuning = Layer("tuning acme", {"training": {"bach_size": 1}}, source="vendor")
    words = r"'training.bach_size'; did you mean training.batch_size.* \(tuning acme; `flagperf cases show toy` lists"
    with pytest.raises(BadInput, match=words):
        resolved(tuning=tuning)


def test_without_a_published_profile_the_default_stands_for_it() -> None:
    assert published_profile(manifest()) == "tiny"
    published = {"about": {"en": "Large"}, "published": True}
    assert published_profile(manifest(profiles={"tiny": {"about": {"en": "Small"}}, "full": published})) == "full"


def test_settings_carry_the_precision_with_its_meaning_if_the_vendor_has_it() -> None:
    settings = make_settings(RunSpec("toy"), manifest(), NO_FILE, MinimalBackend(), None)
    assert (settings.profile, settings.precision.name, settings.precision.compute) == ("tiny", "fp32", "float32")
    with pytest.raises(Unsupported, match=r"^vendor acme does not support precision bf16; it has: fp32, tf32$"):
        make_settings(RunSpec("toy", precision="bf16"), manifest(), NO_FILE, MinimalBackend(), None)


def test_a_precision_that_this_card_lacks_is_unsupported_with_who_says_so() -> None:
    class Older(MinimalBackend):
        def unsupported(self, model: str) -> dict[str, str]:
            return {"tf32": "its data sheet"} if model == "A0" else {}

    message = r"acme A0 does not support precision tf32 \(its data sheet\); it has: fp32$"
    with pytest.raises(Unsupported, match=message):
        refuse_unsupported(precision("tf32"), Older(), "A0")
    refuse_unsupported(precision("fp32"), Older(), "A0")
    refuse_unsupported(precision("tf32"), Older(), "A1")
