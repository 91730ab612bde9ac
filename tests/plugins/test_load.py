"""Loading entry points one by one. Distributions stand in a temporary folder, with metadata as pip writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from distribution_builders import HEADER, Site, device_source

from flagperf import hookspecs
from flagperf.plugins.distributions import entry_points
from flagperf.plugins.load import PluginStatus, core_version, load_entry_points
from flagperf.plugins.registry import Plugins


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)


def statuses(site: Site) -> dict[str, PluginStatus]:
    return {status.name: status for status in load_entry_points(site.entry_points()).statuses}


def problem(site: Site, name: str) -> str:
    return statuses(site)[name].problem


def test_a_good_plugin_has_no_problem(site: Site) -> None:
    site.add("loadtest-good", device_source("good"), version="2.5")
    assert statuses(site) == {"loadtest_good": PluginStatus("loadtest_good", "loadtest-good", "2.5")}


@pytest.mark.parametrize(
    "requirement", ["flagperf", "flagperf>=0.0.1", "flagperf[run]>=0.0.1", "FlagPerf<99", "rich>999"]
)
def test_a_range_that_holds_this_flagperf_is_fine(site: Site, requirement: str) -> None:
    site.add("loadtest-ranges", device_source("ranges"), requires=[requirement])
    assert problem(site, "loadtest_ranges") == ""


@pytest.mark.parametrize("requirement", ["flagperf<0.0.5", "flagperf>=99", "FlagPerf[run]==0.0.1", "flagperf (>=99)"])
def test_a_range_without_this_flagperf_is_refused_before_the_module_is_imported(site: Site, requirement: str) -> None:
    site.add("loadtest-range", "raise SystemExit('imported')", requires=[requirement])
    found = problem(site, "loadtest_range")
    assert found.startswith("it needs flagperf") and found.endswith(f"this is {core_version()}")


@pytest.mark.parametrize("marker", ["extra == 'future'", "python_version < '3.0'", "sys_platform == 'plan9'"])
def test_a_range_that_is_not_for_this_environment_does_not_count(site: Site, marker: str) -> None:
    site.add("loadtest-marker", device_source("marker"), requires=["flagperf", f"flagperf>=99; {marker}"])
    assert problem(site, "loadtest_marker") == ""


def test_metadata_that_cannot_be_read_is_a_reason(site: Site) -> None:
    site.add("loadtest-metadata", device_source("metadata"), requires=["flagperf >>> 1"])
    assert "invalid requirement 'flagperf >>> 1'" in problem(site, "loadtest_metadata")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_library", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("import sys; sys.exit('no licence')", "cannot be imported: SystemExit: no licence"),
        ("", "it does not say FLAGPERF_HOOK_API"),
        ("FLAGPERF_HOOK_API = '1'", "its FLAGPERF_HOOK_API has to be an int such as 1; got the str '1'"),
        ("FLAGPERF_HOOK_API = True", "has to be an int such as 1; got the bool True"),
        (f"{HEADER}@hookimpl\ndef flagperf_divices(): return []", "does not fit the contract: unknown hook"),
        (f"{HEADER}@hookimpl\ndef flagperf_devices(config): return []", "does not fit the contract: "),
    ],
)
def test_a_plugin_that_cannot_be_used_says_why(
    site: Site, source: str, reason: str, request: pytest.FixtureRequest
) -> None:
    name = f"loadtest-bad-{request.node.callspec.indices['source']}"
    site.add(name, source).add("loadtest-rest", device_source("rest"))
    assert reason in problem(site, name.replace("-", "_"))
    assert problem(site, "loadtest_rest") == ""


@pytest.mark.parametrize("version", range(1, hookspecs.HOOK_API + 1))
def test_a_plugin_of_any_version_of_the_contract_that_is_spoken_loads(site: Site, version: int) -> None:
    source = device_source("spoken") + f"FLAGPERF_HOOK_API = {version}\n"
    site.add(f"loadtest-spoken-{version}", source)
    assert problem(site, f"loadtest_spoken_{version}") == ""


@pytest.mark.parametrize("version", [0, hookspecs.HOOK_API + 1])
def test_a_plugin_of_another_version_of_the_contract_says_what_to_do(site: Site, version: int) -> None:
    site.add(f"loadtest-other-{version}", f"FLAGPERF_HOOK_API = {version}")
    assert problem(site, f"loadtest_other_{version}") == (
        f"it was written for HOOK_API {version}, this flagperf {core_version()} speaks {hookspecs.HOOK_API}: upgrade "
        "flagperf, or, if it was written before the first release, set FLAGPERF_HOOK_API = 1"
    )


def test_an_entry_point_to_a_module_that_is_not_there_is_a_reason(site: Site) -> None:
    site.add("loadtest-nowhere", "", entry_points=["nowhere = loadtest_not_there"])
    assert "cannot be imported: ModuleNotFoundError" in problem(site, "nowhere")


def test_an_unknown_hook_of_one_plugin_is_not_held_against_the_next(site: Site) -> None:
    site.add("loadtest-hook-a", f"{HEADER}@hookimpl\ndef flagperf_tea(): return []")
    site.add("loadtest-hook-b", device_source("b"))
    plugins = Plugins(load_entry_points(site.entry_points()))
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["b"]
    assert "flagperf_tea" in problem(site, "loadtest_hook_a")


def test_of_two_plugins_with_one_entry_point_name_each_is_listed_and_works(site: Site) -> None:
    site.add("loadtest-name-a", device_source("a"), entry_points=["same = loadtest_name_a"])
    site.add("loadtest-name-b", device_source("b"), entry_points=["same = loadtest_name_b"])
    plugins = Plugins(load_entry_points(site.entry_points()))
    listed = plugins.statuses()
    assert sorted(status.distribution for status in listed) == ["loadtest-name-a", "loadtest-name-b"]
    assert [status.problem for status in listed] == ["", ""]
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["a", "b"]


def test_a_plugin_cannot_push_a_built_in_one_out_by_its_name(site: Site) -> None:
    own = [
        entry for entry in entry_points("flagperf") if (entry.name, entry.distribution.name) == ("builtin", "flagperf")
    ]
    site.add("loadtest-thief", device_source("thief"), entry_points=["builtin = loadtest_thief"])
    plugins = Plugins(load_entry_points([*own, *site.entry_points()]))
    assert "cpu" in [provided.value.vendor for provided in plugins.device_backends()]


def test_one_module_under_two_names_is_used_once(site: Site) -> None:
    site.add("loadtest-twice", device_source("twice"), entry_points=["one = loadtest_twice", "two = loadtest_twice"])
    plugins = Plugins(load_entry_points(site.entry_points()))
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["twice"]
    problems = {status.name: bool(status.problem) for status in plugins.statuses()}
    assert problems == {"one": False, "two": True}


def test_an_underscore_in_a_distribution_name_is_a_hyphen(site: Site) -> None:
    site.add("Loadtest_Odd", device_source("odd"))
    assert statuses(site)["Loadtest_Odd"].distribution == "loadtest-odd"


def test_a_readme_in_the_metadata_changes_nothing(site: Site) -> None:
    site.add("loadtest-readme", device_source("readme"), requires=["flagperf>=0.0.1"])
    (metadata_file,) = site.folder.glob("loadtest_readme-*/METADATA")
    metadata_file.write_text(metadata_file.read_text() + "Name: another\nRequires-Dist: flagperf>=99\n")
    assert statuses(site)["loadtest_readme"] == PluginStatus("loadtest_readme", "loadtest-readme", "1.0")


def test_a_distribution_without_metadata_is_loaded_by_its_folders_name(site: Site) -> None:
    site.add("loadtest-nameless", device_source("nameless"))
    (metadata_file,) = site.folder.glob("loadtest_nameless-*/METADATA")
    metadata_file.unlink()
    assert statuses(site)["loadtest_nameless"] == PluginStatus("loadtest_nameless", "loadtest-nameless", "1.0")
