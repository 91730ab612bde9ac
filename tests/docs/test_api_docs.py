"""docs/api.md is what the source says, and help() says it too."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from types import ModuleType

import pytest
from write_api_docs import PAGE, render

from flagperf import api, kit, testing, worker
from flagperf.attribute_docs import attributes_of

TYPES = [
    thing
    for package in (api, kit, testing, worker)
    for name in package.__all__
    if isinstance(thing := getattr(package, name), type)
]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_every_type_and_each_of_its_attributes_is_explained_where_help_shows_it(cls: type) -> None:
    shown = " ".join(pydoc.plain(pydoc.render_doc(cls)).replace(" |  ", "").split())
    assert cls.__doc__
    for attribute in attributes_of(cls):
        assert attribute.doc, f"{attribute.name} has no text below it"
        assert " ".join(f"{attribute.declared} {attribute.doc}".split()) in shown, attribute.name


@pytest.mark.parametrize("package", [api, kit, testing, worker], ids=lambda package: package.__name__)
def test_every_public_name_has_a_section(package: ModuleType) -> None:
    page = PAGE.read_text()
    assert [name for name in package.__all__ if f"\n### {name}\n" not in page] == []


def test_no_source_is_parsed_before_somebody_looks() -> None:
    code = "from flagperf import api, kit, attribute_docs as docs; {}; print(docs.module_node.cache_info().currsize)"
    said = [
        subprocess.run([sys.executable, "-c", code.format(look)], capture_output=True, text=True, check=True).stdout
        for look in ("kit.Card", "kit.Card.__doc__")
    ]
    assert said == ["0\n", "1\n"]
