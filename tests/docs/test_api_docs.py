"""docs/api.md is what the source says."""

from __future__ import annotations

import msgspec
import pytest
from write_api_docs import FILES, PAGE, render

from flagperf import api, kit, testing, worker
from flagperf.api.models import ModelsFile
from flagperf.plan.settings import TuningFile
from flagperf.schemas import attributes_of

TYPES = [
    thing
    for package in (api, kit, testing, worker)
    for name in package.__all__
    if isinstance(thing := getattr(package, name), type)
]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


@pytest.mark.parametrize(("name", "struct"), [("models.toml", ModelsFile), ("tuning/&lt;case&gt;.toml", TuningFile)])
def test_the_example_of_a_file_can_be_read(name: str, struct: type) -> None:
    msgspec.toml.decode((FILES[name] or "").partition("\n\n")[2], type=struct)


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_every_type_and_each_of_its_attributes_is_explained(cls: type) -> None:
    assert cls.__doc__
    assert [each.name for each in attributes_of(cls) if not each.doc] == []
