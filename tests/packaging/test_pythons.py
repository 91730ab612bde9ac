"""Every Python and the oldest dependencies that we say we work with: the light part of the tests is run with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from flagperf.spec.toml_files import read_toml

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]


@pytest.mark.full
@pytest.mark.parametrize(("version", "oldest"), [("3.10", "1"), ("3.12", ""), ("3.13", "")])
def test_the_light_part_works(version: str, oldest: str) -> None:
    command = ["make", "test-light", f"PYTHON={interpreter(version)}", f"OLDEST={oldest}"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST_"))}
    done = subprocess.run(
        command, cwd=ROOT, env=outside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]


def interpreter(version: str) -> Path:
    """Of this version, on PATH or where pyenv keeps them."""
    on_path = shutil.which(f"python{version}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in [*([Path(on_path)] if on_path else []), *kept]:
        asked = [path, "-c", "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    pytest.skip(f"there is no Python {version} here")


def test_the_oldest_dependencies_are_the_bounds_that_we_declare() -> None:
    pinned = dict(line.split("==") for line in constraint_lines("constraints-oldest.txt"))
    declared = {name: bound for project in PROJECTS for name, bound in lower_bounds(read_toml(project)["project"])}
    assert {name: Version(version) for name, version in pinned.items()} == declared


def lower_bounds(project: dict[str, Any]) -> list[tuple[str, Version]]:
    """Of what is needed to use flagperf without torch."""
    found = [Requirement(text) for text in project["dependencies"]]
    return [(each.name, lowest(each)) for each in found if each.name != "flagperf"]


def lowest(requirement: Requirement) -> Version:
    (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
    return Version(bound)


def constraint_lines(name: str) -> list[str]:
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_versions_that_we_develop_with_are_allowed_and_named_once() -> None:
    pinned = [Requirement(line) for line in constraint_lines("constraints.txt")]
    here = [each for each in pinned if each.marker is None or each.marker.evaluate()]
    assert len({each.name for each in here}) == len(here)
    every = [text for project in PROJECTS for text in all_requirements(read_toml(project)["project"])]
    allowed = {each.name: each.specifier for each in map(Requirement, every)}
    for each in here:
        (exact,) = each.specifier
        assert each.name not in allowed or allowed[each.name].contains(exact.version), each.name


def all_requirements(project: dict[str, Any]) -> list[str]:
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(text for extra in extras for text in extra)]


def test_the_pythons_are_those_that_the_metadata_names() -> None:
    project = read_toml(ROOT / "pyproject.toml")["project"]
    named = [found[1] for text in project["classifiers"] if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", text))]
    assert named == ["3.10", "3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={named[0]}"
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in named
