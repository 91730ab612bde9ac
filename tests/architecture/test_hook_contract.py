"""Plugins outlive the core that they were written for.

hook_api_<N>.json is the contract as it was released with HOOK_API N, and is never edited. Every version from
MIN_HOOK_API on has to be served. A version that is not released yet has no file and may still grow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from contract_changes import Change, changes
from contract_snapshot import hook_contract

from flagperf.hookspecs import HOOK_API, MIN_HOOK_API

FOLDER = Path(__file__).parent
RELEASE = "FLAGPERF_RELEASE_HOOK_API"
MAY_GROW = ("kit.", "testing.")
"""What plugins are built and tested with. They ask for it, core does not ask them."""


REFUSED = {1: ("api.AgentProcess", "api.Cluster", "api.Node")}
"""What a released version had and no core serves any more, without a higher MIN_HOOK_API: the rest of such a plugin
works. A cluster of HOOK_API 1 started the agents itself, which no cluster of several machines could do well, and none
but the built-in one was released with it. It is refused by its own message (tests/plugins/test_clusters.py)."""


def path_of(version: int) -> Path:
    return FOLDER / f"hook_api_{version}.json"


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    """Written as released first, where that is asked for; a file that is there is left alone."""
    contract = hook_contract()
    if os.environ.get(RELEASE) == "1" and not path_of(HOOK_API).exists():
        path_of(HOOK_API).write_text(json.dumps(contract, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return contract


def problem(
    released: dict[str, Any], now: dict[str, Any], hook_api: int, min_hook_api: int, refused: tuple[str, ...] = ()
) -> str:
    """Which number has to move for what has changed since a release, empty where none has to. `refused` parts may
    change, but not vanish: plugins import them."""
    found = [
        change
        for change in changes(_without_version(released), _without_version(now))
        if not change.place.startswith(tuple(f"{part}." for part in refused))
    ]
    broken = [change for change in found if change.breaks]
    added = [change for change in found if not change.breaks and not change.place.startswith(MAY_GROW)]
    if broken and min_hook_api <= released["version"]:
        return _advice(broken, f"MIN_HOOK_API and HOOK_API have to be above {released['version']}", released)
    if (added or broken) and hook_api <= released["version"]:
        return _advice(added + broken, f"HOOK_API has to be above {released['version']}", released)
    return ""


def _without_version(contract: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in contract.items() if name != "version"}


def _advice(found: list[Change], numbers: str, released: dict[str, Any]) -> str:
    lines = "\n".join(f"    {change}" for change in found)
    return (
        f"the contract differs from that of HOOK_API {released['version']}, for which plugins were shipped:\n{lines}\n"
        f"{numbers} in core/flagperf/hookspecs.py, unless you can do without it. Then add the change to docs, "
        "conformance suite, built-in and one vendor"
    )


@pytest.mark.parametrize("version", [n for n in range(1, HOOK_API + 1) if path_of(n).exists()])
def test_plugins_of_every_released_version_are_served_or_refused(version: int, now: dict[str, Any]) -> None:
    found = problem(json.loads(path_of(version).read_text()), now, HOOK_API, MIN_HOOK_API, REFUSED.get(version, ()))
    if found:
        pytest.fail(found, pytrace=False)


def test_every_version_that_is_served_was_recorded_and_at_most_one_is_not_released(now: dict[str, Any]) -> None:
    recorded = [n for n in range(1, HOOK_API + 1) if path_of(n).exists()]
    assert recorded in (list(range(1, HOOK_API)), list(range(1, HOOK_API + 1)))
    assert 1 <= MIN_HOOK_API <= HOOK_API == now["version"]


def test_the_contract_covers_hooks_api_kit_and_testing(now: dict[str, Any]) -> None:
    assert len(now["hooks"]) == 6
    assert "abstract" in now["api"]["DeviceBackend"]["methods"]["presence"]
    assert now["api"]["Card"] == now["kit"]["Card"]
    assert {"ToolProbe", "TorchrunLauncher"} <= set(now["kit"])
    assert {"MemorySuite", "write_tool"} <= set(now["testing"])


# The judgement itself, on a contract that is made up

RELEASED: dict[str, Any] = {
    "version": 3,
    "hooks": {"flagperf_devices": "() -> 'list'"},
    "api": {
        "Role": {
            "attributes": {"vendor": "ClassVar[str]", "title": "ClassVar[str] = ''"},
            "methods": {"look": "abstract (self) -> 'bool'"},
        },
        "Value": {"fields": ["id: str", "size: int = 0"]},
        "find": {"parameters": ["name: 'str'"], "returns": "int"},
        "WORDS": {"one": "", "two": ""},
    },
    "kit": {"Tool": {"fields": ["name: str"]}},
    "testing": {"Rig": ""},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """RELEASED with another value at a place; None takes it away."""
    contract: dict[str, Any] = json.loads(json.dumps(RELEASED))
    *folders, name = path.split("/")
    inner = contract
    for folder in folders:
        inner = inner[folder]
    if value is None:
        del inner[name]
    else:
        inner[name] = value
    return contract


ADDITIONS = [
    ("hooks/flagperf_tea", "()"),
    ("api/New", {"fields": ["id: str"]}),
    ("api/Role/attributes/aliases", "ClassVar[tuple[str, ...]] = ()"),
    ("api/Role/methods/versions", "(self) -> 'dict'"),
    ("api/Value/fields", ["id: str", "size: int = 0", "colour: str = ''"]),
    ("api/find/parameters", ["name: 'str'", "many: 'bool' = False"]),
    ("api/WORDS/three", ""),
]
BREAKS = [
    ("hooks/flagperf_devices", None),
    ("hooks/flagperf_devices", "(config) -> 'list'"),
    ("api/Value", None),
    ("api/Role/attributes/title", None),
    ("api/Role/attributes/title", "ClassVar[str] = 'none'"),
    ("api/Role/attributes/colour", "ClassVar[str]"),
    ("api/Role/methods/look", "abstract (self, machine) -> 'bool'"),
    ("api/Role/methods/count", "abstract (self) -> 'int'"),
    ("api/Value/fields", ["id: str"]),
    ("api/Value/fields", ["colour: str = ''", "id: str", "size: int = 0"]),
    ("api/Value/fields", ["id: str", "size: int = 0", "colour: str"]),
    ("api/Value/fields", ["id: str", "size: float = 0"]),
    ("api/find/parameters", ["name: 'str'", "many: 'bool'"]),
    ("api/find/returns", "float"),
    ("api/WORDS/one", None),
    ("kit/Tool", None),
    ("testing/Rig", None),
]


@pytest.mark.parametrize(("path", "value"), ADDITIONS)
def test_an_addition_moves_hook_api_alone(path: str, value: Any) -> None:
    assert "HOOK_API has to be above 3" in problem(RELEASED, changed(path, value), hook_api=3, min_hook_api=1)
    assert problem(RELEASED, changed(path, value), hook_api=4, min_hook_api=1) == ""


@pytest.mark.parametrize(("path", "value"), BREAKS)
def test_a_removal_or_another_signature_moves_the_oldest_version_too(path: str, value: Any) -> None:
    assert "MIN_HOOK_API and HOOK_API" in problem(RELEASED, changed(path, value), hook_api=4, min_hook_api=3)
    assert problem(RELEASED, changed(path, value), hook_api=4, min_hook_api=4) == ""


@pytest.mark.parametrize("path", ["kit/Query", "testing/Answer"])
def test_kit_and_suites_may_grow_without_a_new_number(path: str) -> None:
    assert problem(RELEASED, changed(path, {}), hook_api=3, min_hook_api=3) == ""


def test_a_part_that_is_refused_may_change_and_not_vanish() -> None:
    for value in ("abstract (self, machine) -> 'bool'", None):
        contract = changed("api/Role/methods/look", value)
        assert problem(RELEASED, contract, hook_api=4, min_hook_api=1, refused=("api.Role",)) == ""
    for path in ("api/Role", "api/Value/fields"):
        assert problem(RELEASED, changed(path, None), hook_api=4, min_hook_api=1, refused=("api.Role",))


def test_the_advice_names_what_has_changed() -> None:
    found = problem(RELEASED, changed("api/Value/fields", ["id: str"]), hook_api=3, min_hook_api=3)
    assert "    api.Value.fields: 'size: int = 0' became 'nothing'\n" in found
