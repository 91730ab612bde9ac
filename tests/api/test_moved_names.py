"""Names that moved to flagperf.kit are still given by flagperf.api, to adapters that were shipped before."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf import api, kit

ROOT = Path(__file__).parents[2]
OURS = [
    *(ROOT / "core").rglob("*.py"),
    *(ROOT / "core" / "flagperf" / "testing" / "new_vendor").rglob("*.py.txt"),
    *(ROOT / "cases").rglob("*.py"),
    *ROOT.glob("plugins/*/src/**/*.py"),
    *(ROOT / "bench").rglob("*.py"),
]
IN_HOOK_API_1 = (
    "Card", "Cell", "Evidence", "PciFunction", "Query", "Tool", "ToolProbe", "TorchDeviceBackend", "TorchrunLauncher",
    "allowed_cores", "ask_all", "ask_first", "cell_number", "descendants", "find_model", "is_nothing", "join", "judge",
    "make_devices", "memory_limit_bytes", "memory_used_bytes", "merge", "module_command", "near_cpus", "pci_address",
    "pci_functions", "read_cells", "read_cpu_list", "read_models", "run_tool", "visible_devices", "whole_lines",
    "write_cpu_list",
)  # fmt: skip


@pytest.mark.parametrize("name", IN_HOOK_API_1)
def test_a_name_that_moved_is_one_and_the_same_in_both_places(name: str) -> None:
    assert getattr(api, name) is getattr(kit, name)
    assert name not in api.__all__


def test_our_own_code_imports_them_from_the_kit() -> None:
    assert [f"{path}: {name}" for path in OURS for name in imported_from_api(path) if name in IN_HOOK_API_1] == []


def imported_from_api(path: Path) -> list[str]:
    source = re.sub("@(name)@", r"\1", path.read_text(), flags=re.IGNORECASE)  # templates are Python once filled in
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in found if node.module == "flagperf.api" for alias in node.names]


def test_importing_the_contract_loads_nothing_of_the_kit() -> None:
    code = "import sys, flagperf.api; print([name for name in sys.modules if name.startswith('flagperf.kit')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_an_unknown_name_is_refused_as_ever() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Gard' from 'flagperf.api'"):
        from flagperf.api import Gard  # noqa: F401
    with pytest.raises(AttributeError, match=r"module 'flagperf.kit' has no attribute 'Gard'"):
        kit.Gard  # noqa: B018
