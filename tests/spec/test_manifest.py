"""case.toml files, good and bad. A bad one is named with the field that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf.plugins import load_plugins
from flagperf.spec import Manifest, read_manifest, resolve
from flagperf.spec.values import Layer

GOOD = """
name = "toy"
version = 1
kind = "training"
title = { en = "Toy" }
task = { en = "Play" }
model = "none"
dataset = "none"
precisions = ["fp32"]
default_profile = "tiny"

[page]
columns = ["precision"]
rows = ["precision"]

[values]
precision = "fp32"
training.batch_size = 8

[profiles.tiny]
about = { en = "Small" }

[[qualities]]
name = "acc"
unit = "fraction"
definition = "right ones over all"

[target]
metric = "acc"
key = "training.batch_size"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "case.toml"


def read(path: Path, text: str) -> Manifest:
    path.write_text(text)
    return read_manifest(path)


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_manifest(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


def test_a_good_file_is_read_with_its_defaults(path: Path) -> None:
    manifest = read(path, GOOD)
    assert (manifest.name, manifest.version, manifest.requires, manifest.sample_unit) == ("toy", 1, (), "samples/s")
    assert manifest.values == {"precision": "fp32", "training": {"batch_size": 8}}
    assert not manifest.profiles["tiny"].published and not manifest.profiles["tiny"].needs_data_dir
    assert manifest.target is not None and not manifest.target.gates


@pytest.mark.parametrize(
    "field", ["name", "version", "kind", "title", "task", "model", "dataset", "precisions", "default_profile"]
)
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{field} =")] + [""]
    without = "\n".join(lines) if field != "name" else GOOD.replace('name = "toy"\n', "", 1)
    assert f"missing required field `{field}`" in refusal(path, without)


def test_a_missing_table_is_named(path: Path) -> None:
    without_page = GOOD.replace('[page]\ncolumns = ["precision"]\nrows = ["precision"]\n', "")
    assert "missing required field `page`" in refusal(path, without_page)
    without_values = GOOD.replace('[values]\nprecision = "fp32"\ntraining.batch_size = 8\n', "")
    assert "missing required field `values`" in refusal(path, without_values)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name = "toy"', "name = 7", "Expected `str`, got `int` - at `$.name`"),
        ("version = 1", 'version = "1"', "Expected `int`, got `str` - at `$.version`"),
        ('"training"', '"traning"', "Invalid enum value 'traning' - at `$.kind`"),
        ('precisions = ["fp32"]', 'precisions = "fp32"', "Expected `array`, got `str` - at `$.precisions`"),
        ('title = { en = "Toy" }', 'title = "Toy"', "Expected `object`, got `str` - at `$.title`"),
        ('model = "none"', 'model = "none"\nmodle = "x"', "unknown field `modle`"),
        ('about = { en = "Small" }', "", "missing required field `about` - at `$.profiles"),
        ('about = { en = "Small" }', 'about = { en = "S" }\nvalue = {}', "unknown field `value` - at `$.profiles"),
        ('unit = "fraction"', "", "missing required field `unit` - at `$.qualities[0]`"),
        ('unit = "fraction"', 'unit = "x"\nformat = "percent"', "Invalid enum value 'percent'"),
        ('metric = "acc"', 'metric = "acc"\ngate = true', "unknown field `gate` - at `$.target`"),
        ("[page]", "[limits]\nx = { least = 1 }\n[page]", "unknown field `least` - at `$.limits"),
        ('default_profile = "tiny"', 'default_profile = "small"', "default_profile 'small' is not one of its profiles"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_place(path: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    assert problem in refusal(path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize("text", ["name = ", "[page\n", "a = 1\na = 2\n"])
def test_a_file_that_is_no_toml_is_named(path: Path, text: str) -> None:
    assert "is not valid TOML" in refusal(path, text)


def test_a_file_that_is_no_text_is_named(path: Path) -> None:
    path.write_bytes(b"\xff\xfename")
    with pytest.raises(BadInput, match=r"case\.toml is not valid TOML"):
        read_manifest(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.toml: No such file or directory"):
        read_manifest(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="Is a directory"):
        read_manifest(tmp_path)


# What every command takes for granted


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('title = { en = "Toy" }', 'title = { zh = "玩具" }', "title"),
        ('task = { en = "Play" }', 'task = { zh = "玩" }', "task"),
        ('about = { en = "Small" }', 'about = { zh = "小" }', "about"),
        ('precision = "fp32"\n', "", "precision"),
        ('precision = "fp32"\n', "precision = 32\n", "precision"),
        ('name = "toy"', 'name = "to/y"', "name"),
    ],
)
def test_what_is_needed_later_is_asked_for_when_the_file_is_read(path: Path, old: str, new: str, field: str) -> None:
    assert old in GOOD
    assert field in refusal(path, GOOD.replace(old, new, 1)).removeprefix(str(path))


@pytest.mark.parametrize("name", sorted(load_plugins().cases()))
def test_the_profiles_of_every_installed_case_fit_its_values(name: str) -> None:
    manifest = load_plugins().case(name).manifest
    for profile, content in manifest.profiles.items():
        resolve(manifest, [Layer(f"profile {profile}", content.values)])
