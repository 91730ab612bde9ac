"""Plugins and recorded runs outlive the code that they were made with.

hook_api_1.json is the contract of HOOK_API 1: plugins that were written for it keep working, whatever is added later.
contract.json has the events and the files of a bundle. Until the first release, and never after it, the files are
written anew where a contract has changed: FLAGPERF_UPDATE_CONTRACT=1 pytest tests/architecture/test_frozen_contract.py
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from contract_snapshot import Change, changes, hook_contract, snapshot

import flagperf
from flagperf.hookspecs import HOOK_API

HERE = Path(__file__).parent
MAY_GROW = ("kit.", "testing.")
"""What plugins are built and tested with. They ask for it, core does not ask them."""


def recorded(name: str, now: dict[str, Any]) -> dict[str, Any]:
    """Return the contract as it was recorded, which is written anew first where that is asked for."""
    path = HERE / name
    if os.environ.get("FLAGPERF_UPDATE_CONTRACT") == "1":
        path.write_text(json.dumps(now, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return dict(json.loads(path.read_text()))


def refuse(found: Iterable[Change], advice: str) -> None:
    lines = "\n".join(f"    {change}" for change in found)
    if lines:
        pytest.fail(f"a contract has changed:\n{lines}\n{advice}. {__doc__}", pytrace=False)


def test_plugins_of_hook_api_1_keep_working() -> None:
    now = hook_contract()
    before = recorded("hook_api_1.json", now)
    version, found = before["version"], list(changes(before, {**now, "version": before["version"]}))
    refuse([change for change in found if change.breaks], f"plugins of HOOK_API {version} may stop working")
    added = [change for change in found if not change.place.startswith(MAY_GROW)]
    refuse(added if version >= HOOK_API else (), f"HOOK_API in hookspecs.py has to be above {version}")


def test_the_hook_contract_covers_hooks_api_kit_and_testing() -> None:
    now = hook_contract()
    assert len(now["hooks"]) == 6
    assert "abstract" in now["api"]["DeviceBackend"]["methods"]["presence"]
    assert {"ToolProbe", "TorchrunLauncher"} <= set(now["kit"])
    assert {"MemorySuite", "write_tool"} <= set(now["testing"])


@pytest.mark.parametrize("number", ["EVENT_SCHEMA", "STORE_SCHEMA"])
def test_no_event_and_no_file_of_a_bundle_changes_without_its_version_number(number: str) -> None:
    now = snapshot()
    refuse(changes(recorded("contract.json", now)[number], now[number]), f"{number} has to move, and the file with it")


def test_the_snapshot_covers_the_events_and_the_bundle() -> None:
    now = snapshot()
    assert {"StepFinished", "Clock", "Reading"} <= set(now["EVENT_SCHEMA"]["events"])
    assert now["EVENT_SCHEMA"]["events"]["StepFinished"]["tag"] == "step_finished"
    assert {"Run", "Job", "Manifest", "Metric", "NodeFacts", "Device"} <= set(now["STORE_SCHEMA"]["bundle"])


def test_flagperf_itself_gives_one_function_and_its_version() -> None:
    assert flagperf.__all__ == ["run_case", "version"]
    assert callable(flagperf.run_case)
    assert flagperf.__version__ == flagperf.version() == importlib.metadata.version("flagperf")
    with pytest.raises(AttributeError, match="no attribute 'run_everything'"):
        flagperf.run_everything  # noqa: B018
