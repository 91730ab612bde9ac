"""docs/add-an-operator.md does what it says: its operator is right, its library can be enabled."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from flagperf.api import OperatorLibrary
from flagperf_cases.operators.case import Measured, Operands, make_implementation
from flagperf_cases.operators.data import Row
from flagperf_cases.operators.groups import OPERATORS
from flagperf_cases.operators.operator import Operand, Operator
from flagperf_cases.operators.tolerance import EXACT

PAGE = (Path(__file__).parents[2] / "docs" / "add-an-operator.md").read_text(encoding="utf-8")
ENTRY, PLUGIN = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_operator_is_measured_and_right() -> None:
    operator: Operator = eval(ENTRY, {"Operator": Operator, "Operand": Operand, "EXACT": EXACT, "torch": torch})
    assert operator.name in OPERATORS
    row = Row(operator, operator.shapes["tiny"][0], "bf16", "forward", "warm")
    measured = Measured(row, Operands(row, "cpu"), make_implementation("eager", None))  # type: ignore[arg-type]
    assert measured.check(measured.call()())["tolerance"] == "exact"


def test_the_library_needs_no_more_than_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(PLUGIN, names)
    (library,) = names["flagperf_operator_libraries"]()
    assert isinstance(library, OperatorLibrary) and library.name == "flaggems" and "flag_gems" not in sys.modules
    stand_in = ModuleType("flag_gems")
    vars(stand_in).update(use_gems=contextlib.nullcontext, silu_and_mul=lambda gate, up: gate * up)
    monkeypatch.setitem(sys.modules, "flag_gems", stand_in)
    with library.enable():
        assert set(library.functions()) <= set(OPERATORS)
