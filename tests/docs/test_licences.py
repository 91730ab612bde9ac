"""docs/licences.md lists what we ask for, with the licence that it has."""

from __future__ import annotations

import importlib.metadata
import re

from write_licences import EXTRAS, MARKER, PAGE, ROOT, direct_requirements, licence

from flagperf.spec.toml_files import read_toml


def sections() -> dict[str, dict[str, str]]:
    parts = PAGE.read_text().partition(MARKER)[2].split("\n## ")[1:]
    rows = r"^\| ([a-z0-9.-]+) \| (.*?) \| (?:indirectly)? ?\|$"
    return {part.splitlines()[0]: dict(re.findall(rows, part, flags=re.MULTILINE)) for part in parts}


def test_everything_that_we_ask_for_is_listed_with_the_licence_that_it_states() -> None:
    listed = sections()
    asked = direct_requirements()
    assert set(listed) == set(asked)
    assert [name for title, names in asked.items() for name in names if name not in listed[title]] == []
    extras = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    assert set(EXTRAS) == {name for name, requirements in extras.items() if requirements}
    stated = {name: text for section in listed.values() for name, text in section.items()}
    assert len(stated) > 20 and all(stated.values())
    installed = {name: text for name, text in stated.items() if is_installed(name)}
    assert {name: licence(name) for name in installed} == installed, "run `make docs`"


def is_installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
