"""check_files and listing: what the case refuses, and what it consists of. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf_cases.operators.groups import OPERATORS, PUBLISHED
from flagperf_cases.operators.operator import SHAPE_CLASSES, Operator, shape_text
from flagperf_cases.operators.rows import check_values


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    check_values(values["operators"])
    return []


def contents() -> dict[str, list[dict[str, str]]]:
    operators = [_described(operator) for operator in OPERATORS.values()]
    shapes = [
        {"OPERATOR": operator.name, "CLASS": name, "SHAPES": "; ".join(map(shape_text, operator.shapes[name]))}
        for operator in OPERATORS.values()
        for name in SHAPE_CLASSES
        if name in operator.shapes
    ]
    return {"Operators": operators, "Shapes": shapes}


def _described(operator: Operator) -> dict[str, str]:
    return {
        "OPERATOR": operator.name,
        "GROUP": operator.group,
        "PUBLISHED": "yes" if operator.name in PUBLISHED else "",
        "DTYPES": " ".join(operator.dtypes),
        "DIRECTIONS": " ".join(operator.directions),
        "FIGURE": operator.figure,
    }
