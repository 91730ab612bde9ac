"""Distributions are found as importlib.metadata finds them, without importing it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from distribution_builders import Site

from flagperf.plugins.distributions import Distribution, EntryPoint, entry_points, installed_version

METADATA = "Metadata-Version: 2.1\nName: Acme_Cards\nVersion: 1.5\nRequires-Dist: flagperf>=0.1\n\nName: not a header\n"
ENTRY_POINTS = "[console_scripts]\nacme = acme:main\n\n[flagperf]\n# ours\nacme = flagperf_acme\nmore=a.b:c.d [extra]\n"


def write_info(folder: Path, metadata: str = METADATA, file: str = "METADATA") -> Path:
    folder.mkdir(parents=True)
    (folder / file).write_text(metadata)
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder.parent


def found_in(*path: Path) -> list[tuple[str, str, str, str]]:
    found = entry_points("flagperf", list(map(str, path)))
    return [(each.name, each.value, each.distribution.name, each.distribution.version) for each in found]


ACME = [("acme", "flagperf_acme", "acme-cards", "1.5"), ("more", "a.b:c.d [extra]", "acme-cards", "1.5")]


@pytest.mark.parametrize("group", ["flagperf", "pytest11", "console_scripts", "no such group"])
def test_this_environment_is_read_as_importlib_reads_it(group: str) -> None:
    ours = {(each.name, each.value) for each in entry_points(group)}
    assert ours == {(each.name, each.value) for each in importlib.metadata.entry_points(group=group)}


@pytest.mark.parametrize("name", ["flagperf", "msgspec", "click"])
def test_an_installed_version_is_that_of_importlib(name: str) -> None:
    assert installed_version(name) == importlib.metadata.version(name)


def test_what_is_not_installed_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="no-such-distribution"):
        installed_version("no-such-distribution")


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("acme_cards-1.5.dist-info", "METADATA"),
        ("acme_cards.egg-info", "PKG-INFO"),
        ("acme_cards-1.5-py3.11.egg/EGG-INFO", "PKG-INFO"),
    ],
)
def test_every_form_of_installation_is_found(tmp_path: Path, folder: str, file: str) -> None:
    assert found_in(write_info(tmp_path / folder, file=file)) == ACME


def test_a_wheel_on_the_path_is_read_by_importlib(tmp_path: Path) -> None:
    wheel = tmp_path / "acme_cards-1.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("acme_cards-1.5.dist-info/METADATA", METADATA)
        archive.writestr("acme_cards-1.5.dist-info/entry_points.txt", ENTRY_POINTS)
    assert found_in(wheel) == ACME
    assert found_in(write_info(tmp_path / "site" / "acme_cards-1.5.dist-info"), wheel) == ACME


def test_an_archive_without_metadata_is_an_unknown_distribution(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("acme_cards-1.5.dist-info/entry_points.txt", ENTRY_POINTS)
    assert {name for *_, name, _ in found_in(tmp_path / "odd.zip")} == {"unknown"}


def test_the_first_distribution_of_a_name_on_the_path_counts(tmp_path: Path) -> None:
    newer = METADATA.replace("1.5", "2.0")
    first = write_info(tmp_path / "first" / "Acme.Cards-2.0.dist-info", newer)
    second = write_info(tmp_path / "second" / "acme_cards-1.5.dist-info")
    assert {version for *_, version in found_in(first, second)} == {"2.0"}
    assert {version for *_, version in found_in(second, first)} == {"1.5"}


def test_entries_of_the_path_that_are_not_there_or_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_text("no archive")
    site = write_info(tmp_path / "site" / "acme_cards-1.5.dist-info")
    assert found_in(tmp_path / "gone", tmp_path / "broken.zip", site) == ACME


@pytest.mark.parametrize(
    "metadata", ["", "Metadata-Version: 2.1\nSummary: nameless\n", "Summary: x\n\nName: below\nVersion: 1\n"]
)
def test_without_a_name_in_its_metadata_a_distribution_is_called_as_its_folder(tmp_path: Path, metadata: str) -> None:
    found = entry_points("flagperf", [str(write_info(tmp_path / "acme_cards-1.5.dist-info", metadata))])
    assert {each.distribution for each in found} == {Distribution("acme-cards", "1.5", has_metadata=False)}


def test_requirements_are_those_of_the_head_alone(tmp_path: Path) -> None:
    site = Site(tmp_path).add("loadtest-needs", "", requires=["flagperf>=0.1", "rich"])
    assert site.entry_points()[0].distribution.requirements == ("flagperf>=0.1", "rich")


@pytest.mark.parametrize(
    ("value", "loaded"), [("json", "json"), ("os:path.join", "join"), ("json : loads [x]", "loads")]
)
def test_an_entry_point_loads_a_module_or_an_attribute_of_it(value: str, loaded: str) -> None:
    assert EntryPoint("any", value, Distribution("unknown", "")).load().__name__ == loaded


def test_listing_plugins_does_not_import_importlib_metadata() -> None:
    code = "import sys, flagperf.plugins as p; p.load_plugins().cases(); p.core_version(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # An adapter may import what it likes: only ours is judged.
    own = {"importlib.metadata", "email.message", "packaging.requirements"}
    assert own & set(done.stdout.split()) == set()
