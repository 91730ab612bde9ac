"""Two settings that take turns."""

from __future__ import annotations

import pytest

from flagperf.errors import BadInput
from flagperf.run import other_setting, turns
from flagperf.spec.job import RunSpec


def test_turns_are_balanced() -> None:
    assert "".join(turns(5, "AB")) == "ABBAABBAAB"
    assert turns(3, ("",)) == ["", "", ""]


def test_the_other_setting_replaces_values_of_the_first_also_its_precision() -> None:
    spec = RunSpec("x", set=("training.batch_size=8", "training.seed=1"), precision="fp32")
    other = other_setting(spec, ["training.batch_size=16"])
    assert (other.set, other.precision) == (("training.seed=1", "training.batch_size=16"), "fp32")
    other = other_setting(RunSpec("x", precision="fp32"), ["precision=bf16"])
    assert (other.set, other.precision) == (("precision=bf16",), None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["training.seed"], "--interleave-with takes key=value"),
        (["training.seed=1", "training.seed=2"], "--interleave-with gives training.seed more than once"),
    ],
)
def test_what_is_no_other_setting(changes: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        other_setting(RunSpec("x"), changes)
