from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf.plan.settings import find_tuning, tuned_models

ENTRY = """
[[tuning]]
model = "A1"
source = "{source}"
{keys}
[tuning.values.training]
batch_size = 8
"""


def write(folder: Path, *entries: tuple[str, str]) -> Path:
    text = "".join(ENTRY.format(source=source, keys=keys) for source, keys in entries)
    (folder / "toy.toml").write_text(text)
    return folder


def source_of(
    folder: Path, nodes: int = 1, devices: int = 8, model: str = "A1", profile: str = "standard"
) -> str | None:
    found = find_tuning(folder, "toy", model, nodes, devices, profile)
    return found.source if found else None


def test_an_entry_gives_its_values_and_nothing_else_is_tuning(tmp_path: Path) -> None:
    assert find_tuning(None, "toy", "A1", 1, 8, "standard") is None
    assert source_of(tmp_path) is None
    found = find_tuning(write(tmp_path, ("any", "")), "toy", "A1", 1, 8, "standard")
    assert found is not None and found.values == {"training": {"batch_size": 8}}
    assert source_of(tmp_path, model="A2") is None


def test_an_entry_is_for_the_published_profile_unless_it_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, ("published", ""), ("small", 'profile = "tiny"'))
    found = [source_of(tmp_path, profile=profile) for profile in ("standard", "tiny", "other")]
    assert found == ["published", "small", None]


SHAPES = [("any", ""), ("one node", "nodes = 1"), ("eight cards", "devices = 8"), ("1x8", "nodes = 1\ndevices = 8")]


@pytest.mark.parametrize("entries", [SHAPES, SHAPES[::-1]])
def test_the_entry_that_names_more_of_the_shape_goes_first_wherever_it_stands(
    tmp_path: Path, entries: list[tuple[str, str]]
) -> None:
    write(tmp_path, *entries)
    found = [source_of(tmp_path, *shape) for shape in ((1, 8), (2, 8), (1, 2), (2, 2))]
    assert found == ["1x8", "eight cards", "one node", "any"]


def test_of_entries_that_fit_equally_well_the_first_counts_and_another_shape_never(tmp_path: Path) -> None:
    assert source_of(write(tmp_path, ("first", "devices = 8"), ("second", "nodes = 1"))) == "first"
    assert source_of(write(tmp_path, ("2x8", "nodes = 2\ndevices = 8"))) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[tuning]\n", "is not valid TOML"),
        ('[[tuning]]\nmodel = "A1"\n[tuning.values]\n', "missing required field `source`"),
        ('[[tuning]]\nmodel = 1\nsource = "x"\n[tuning.values]\n', "Expected `str`, got `int`"),
        ('[[tuning]]\nmodel = "A1"\nsource = "x"\ncards = 8\n[tuning.values]\n', "unknown field `cards`"),
        ('[tuning]\nmodel = "A1"\n', "Expected `array`, got `object`"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "toy.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        source_of(tmp_path)
    assert str(tmp_path / "toy.toml") in str(caught.value) and problem in str(caught.value)


def test_every_tuned_model_is_known_once_whatever_the_case(tmp_path: Path) -> None:
    write(tmp_path, ("first", "devices = 8"), ("second", "nodes = 1"))
    (tmp_path / "other.toml").write_text(ENTRY.replace('"A1"', '"B2"').format(source="x", keys=""))
    assert tuned_models(tmp_path) == ["B2", "A1"]
    assert tuned_models(None) == []
