"""Plugins outlive the core that they were written for.

hook_api_1.json is the contract of HOOK_API 1: plugins that were written for it keep working, whatever is added later.
Until the first release, and never after it, the file is written anew where the contract has changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from contract_changes import changes
from contract_snapshot import hook_contract

from flagperf.hookspecs import HOOK_API

RECORDED = Path(__file__).parent / "hook_api_1.json"
UPDATE = "FLAGPERF_UPDATE_CONTRACT"
MAY_GROW = ("kit.", "testing.")
"""What plugins are built and tested with. They ask for it, core does not ask them."""


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    """Write the file anew first, where that is asked for."""
    contract = hook_contract()
    if os.environ.get(UPDATE) == "1":
        RECORDED.write_text(json.dumps(contract, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return contract


def problem(recorded: dict[str, Any], now: dict[str, Any], hook_api: int) -> str:
    """Say what must not change, or which number has to move for what was added; empty if nothing is wrong."""
    before, after = ({name: part for name, part in each.items() if name != "version"} for each in (recorded, now))
    found = list(changes(before, after))
    broken = [change for change in found if change.breaks]
    added = [change for change in found if not change.breaks and not change.place.startswith(MAY_GROW)]
    version = recorded["version"]
    if broken:
        advice = f"plugins that were written for HOOK_API {version} may stop working. Do without it"
    elif added and hook_api <= version:
        broken, advice = added, f"HOOK_API in core/flagperf/hookspecs.py has to be above {version}"
    else:
        return ""
    lines = "\n".join(f"    {change}" for change in broken)
    return (
        f"the contract differs from that of HOOK_API {version}:\n{lines}\n{advice}. Before the first release, write "
        f"the file anew instead: {UPDATE}=1 pytest tests/architecture/{Path(__file__).name}. Then add the change to docs, "  # noqa: E501
        "conformance suite, built-in and one vendor"
    )


def test_plugins_of_hook_api_1_keep_working(now: dict[str, Any]) -> None:
    found = problem(json.loads(RECORDED.read_text()), now, HOOK_API)
    if found:
        pytest.fail(found, pytrace=False)


def test_the_contract_covers_hooks_api_kit_and_testing(now: dict[str, Any]) -> None:
    assert len(now["hooks"]) == 6
    assert "abstract" in now["api"]["DeviceBackend"]["methods"]["presence"]
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
def test_an_addition_moves_hook_api(path: str, value: Any) -> None:
    assert "has to be above 3" in problem(RELEASED, changed(path, value), hook_api=3)
    assert problem(RELEASED, changed(path, value), hook_api=4) == ""


@pytest.mark.parametrize(("path", "value"), BREAKS)
def test_a_removal_or_another_signature_is_refused_whatever_the_number(path: str, value: Any) -> None:
    assert "may stop working" in problem(RELEASED, changed(path, value), hook_api=4)


@pytest.mark.parametrize("path", ["kit/Query", "testing/Answer"])
def test_kit_and_suites_may_grow_without_a_new_number(path: str) -> None:
    assert problem(RELEASED, changed(path, {}), hook_api=3) == ""


def test_the_advice_names_what_has_changed() -> None:
    found = problem(RELEASED, changed("api/Value/fields", ["id: str"]), hook_api=3)
    assert "    api.Value.fields: 'size: int = 0' became 'nothing'\n" in found
