"""Loading entry points one by one. Distributions stand in a temporary folder, with metadata as pip writes it."""

from __future__ import annotations

import sys
import time
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plugin_harness import HEADER, Site, device_source

from flagperf import hookspecs, version
from flagperf.api import Allocation, Cluster, DeviceBackend, LaunchCommand, Launcher
from flagperf.errors import BadInput, PluginFailed
from flagperf.plugins import loading
from flagperf.plugins.installed import Plugins
from flagperf.plugins.loading import PluginStatus, ask, installed_entry_points, load_entry_points


def statuses(site: Site) -> dict[str, PluginStatus]:
    return {status.name: status for status in load_entry_points(site.entry_points()).statuses}


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
        *((f"FLAGPERF_HOOK_API = {other}",
           f"it was written for HOOK_API {other}, this flagperf {version()} speaks {hookspecs.HOOK_API}: upgrade "
           "flagperf, or, if it was written before the first release, set FLAGPERF_HOOK_API = 1")
          for other in (0, hookspecs.HOOK_API + 1)),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_used_says_why_and_hurts_no_other(
    site: Site, source: str, reason: str, request: pytest.FixtureRequest
) -> None:
    name = f"loadtest-bad-{request.node.callspec.indices['source']}"
    site.add(name, source).add("loadtest-rest", device_source("rest"), version="2.5")
    found = statuses(site)
    assert reason in found.pop(name.replace("-", "_")).problem
    assert found == {"loadtest_rest": PluginStatus("loadtest_rest", "loadtest-rest", "2.5")}


def test_of_two_plugins_with_one_entry_point_name_each_is_listed_and_works(site: Site) -> None:
    site.add("loadtest-name-a", device_source("a"), entry_points=["same = loadtest_name_a"])
    site.add("loadtest-name-b", device_source("b"), entry_points=["same = loadtest_name_b"])
    plugins = site.load()
    listed = plugins.statuses()
    assert sorted(status.distribution for status in listed) == ["loadtest-name-a", "loadtest-name-b"]
    assert [status.problem for status in listed] == ["", ""]
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["a", "b"]


def test_a_plugin_cannot_push_a_built_in_one_out_by_its_name(site: Site) -> None:
    own = [each for each in installed_entry_points() if each.name == "builtin"]
    site.add("loadtest-thief", device_source("thief"), entry_points=["builtin = loadtest_thief"])
    plugins = Plugins(load_entry_points([*own, *site.entry_points()]))
    assert "cpu" in [provided.value.vendor for provided in plugins.device_backends()]


def test_one_module_under_two_names_is_used_once(site: Site) -> None:
    site.add("loadtest-twice", device_source("twice"), entry_points=["one = loadtest_twice", "two = loadtest_twice"])
    plugins = site.load()
    assert [provided.value.vendor for provided in plugins.device_backends()] == ["twice"]
    problems = {status.name: bool(status.problem) for status in plugins.statuses()}
    assert problems == {"one": False, "two": True}


def test_names_are_normalised_and_metadata_may_be_gone(site: Site) -> None:
    site.add("Loadtest_Odd", device_source("odd")).add("loadtest-nameless", device_source("nameless"))
    (metadata_file,) = site.folder.glob("loadtest_nameless-*/METADATA")
    metadata_file.unlink()
    found = statuses(site)
    assert found["Loadtest_Odd"].distribution == "loadtest-odd"
    assert found["loadtest_nameless"] == PluginStatus("loadtest_nameless", "unknown", "unknown")


def test_of_two_distributions_of_one_name_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, folder in (("1.0", tmp_path / "second"), ("2.0", tmp_path / "first")):
        folder.mkdir()
        Site(folder).add("loadtest-both", device_source("both"), version=number)
        monkeypatch.syspath_prepend(folder)
    found = [status for status in load_entry_points().statuses if status.name == "loadtest_both"]
    assert found == [PluginStatus("loadtest_both", "loadtest-both", "2.0")]


# --- leaving out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["loadtest_out", "flagperf-loadtest-out", "x, LOADTEST-OUT", "loadtest-out,"])
def test_a_plugin_that_is_left_out_is_not_imported(site: Site, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add("flagperf-loadtest-out", "raise SystemExit('imported')", entry_points=["out = flagperf_loadtest_out"])
    site.add("flagperf-loadtest-in", device_source("in"))
    monkeypatch.setenv("FLAGPERF_WITHOUT", words)
    loaded = load_entry_points(site.entry_points())
    assert [status.distribution for status in loaded.statuses] == ["flagperf-loadtest-in"]
    (status,) = loaded.left_out
    assert (status.name, status.problem) == ("out", f"it is left out by FLAGPERF_WITHOUT={words}")


def test_our_own_plugins_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGPERF_WITHOUT", "builtin,flagperf,cpu")
    assert "builtin" in [status.name for status in load_entry_points().statuses]


# --- what methods give ------------------------------------------------------------------------------------------------

ACME = PluginStatus("acme", "flagperf-acme", "1.2.3")


def refuse() -> None:
    raise BadInput("there are 2 nodes, not 3")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (refuse, BadInput, "there are 2 nodes, not 3"),
        (lambda: sys.exit(3), PluginFailed, "adapter flagperf-acme 1.2.3 failed: peaks: SystemExit: 3"),
    ],
)
def test_an_error_for_the_user_stays_and_any_other_names_the_plugin(
    call: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        ask(ACME, "peaks", call, list[int])
    assert str(raised.value) == words


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x", Path | None),
        (None, LaunchCommand),
        (LaunchCommand([1, 2]), LaunchCommand),  # type: ignore[arg-type]
        ([1], list[str]),
        ({"a": 1.5}, dict[str, int]),
        (object(), list[str]),
        (True, str | None),
        ([b"x"], list[str]),
    ],
)
def test_another_type_than_the_contract_says_is_named(given: Any, expected: Any) -> None:
    with pytest.raises(PluginFailed, match=f"it: TypeError: it gave {type(given).__name__}, not "):
        ask(ACME, "it", lambda: given, expected)
    for right, contract in ((Path("x"), Path | None), (None, Path | None), (LaunchCommand(("a",)), LaunchCommand)):
        assert ask(ACME, "it", lambda right=right: right, contract) == right
    assert ask(ACME, "it", lambda: ("a",), list[str]) == ["a"]


@pytest.mark.parametrize("contract", [Allocation, Cluster, DeviceBackend, Launcher])
def test_every_method_of_the_contract_says_what_it_gives(contract: type) -> None:
    for name, value in vars(contract).items():
        if isinstance(value, types.FunctionType) and not name.startswith("_"):
            assert "return" in typing.get_type_hints(value), name


def test_a_long_wait_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(loading, "NOTE_SECONDS", 0.01)
    told: list[str] = []

    def queue() -> list[int]:
        while not told:
            time.sleep(0.01)
            told.extend(capsys.readouterr().err.splitlines())
        return []

    ask(ACME, "allocate", queue, list[int])
    assert told == ["flagperf: waiting for flagperf-acme 1.2.3: allocate"]
