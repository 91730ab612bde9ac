"""Choose and check the rows that the values of a run ask for, and list all operators. Importable without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.operators.groups import OPERATORS, PUBLISHED
from flagperf_cases.operators.operator import SHAPE_CLASSES, TORCH_NAMES, Direction, Operator, Sizes, shape_text


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    check_values(values["operators"])
    return []


def check_values(values: dict[str, Any]) -> None:
    """Raise BadInput for a word that means nothing, and for words that leave no row."""
    known = {
        "only": ("operator", OPERATORS),
        "shapes": ("class of shapes", SHAPE_CLASSES),
        "dtypes": ("dtype", TORCH_NAMES),
        "directions": ("direction", DIRECTIONS),
        "caches": ("cache", CACHES),
    }
    for key, (kind, names) in known.items():
        for name in values[key]:
            if name not in names:
                raise unknown_name(kind, str(name), names, f"(operators.{key})")
        if not values[key] and key != "only":
            raise BadInput(f"operators.{key} is empty: nothing would be measured; choose from {', '.join(names)}")
    if not values["libraries"]:
        raise BadInput("operators.libraries is empty: nothing would be measured; begin with eager")
    if next(rows(values), None) is None:
        chosen = ", ".join(f"operators.{key}={values[key]}" for key in known if key != "only" or values[key])
        raise BadInput(f"no operator has a row with {chosen}; `flagperf cases show operators` lists what each has")


# --- rows -------------------------------------------------------------------------------------------------------------

DIRECTIONS = ("forward", "backward")
CACHES = ("cold", "warm")


class Row(msgspec.Struct, frozen=True):
    """Names one thing to be measured, by all libraries in turn."""

    operator: Operator
    sizes: Sizes
    dtype: str
    direction: Direction
    cache: str

    @property
    def labels(self) -> dict[str, str]:
        return {
            "operator": self.operator.name,
            "group": self.operator.group,
            "shape": shape_text(self.sizes),
            "dtype": self.dtype,
            "direction": self.direction,
            "cache": self.cache,
        }

    @property
    def memory_bytes(self) -> int:
        return self.operator.memory_bytes(self.sizes, self.dtype, self.direction)

    @property
    def check_bytes(self) -> int:
        return self.operator.check_bytes(self.sizes, self.dtype, self.direction)


def rows(values: dict[str, Any]) -> Iterator[Row]:
    """Yield rows in the order of the table. `values` is the group `operators` of the run's values."""
    for operator in OPERATORS.values():
        if values["only"] and operator.name not in values["only"]:
            continue
        for sizes in shapes(operator, values["shapes"]):
            for dtype in (each for each in operator.dtypes if each in values["dtypes"]):
                for direction in (each for each in directions(operator, dtype) if each in values["directions"]):
                    for cache in (each for each in CACHES if each in values["caches"]):
                        yield Row(operator, sizes, dtype, direction, cache)


def shapes(operator: Operator, classes: Sequence[str]) -> list[Sizes]:
    """Return the shapes of these classes, each once."""
    found = {shape_text(sizes): sizes for name in classes for sizes in operator.shapes.get(name, ())}
    return list(found.values())


def directions(operator: Operator, dtype: str) -> tuple[Direction, ...]:
    """Return the directions that a dtype has: whole numbers have no gradients."""
    return operator.directions if dtype.startswith(("fp", "bf")) else ("forward",)


# --- listing ----------------------------------------------------------------------------------------------------------


def contents() -> dict[str, list[dict[str, str]]]:
    operators = [
        {
            "OPERATOR": operator.name,
            "GROUP": operator.group,
            "PUBLISHED": "yes" if operator.name in PUBLISHED else "",
            "DTYPES": " ".join(operator.dtypes),
            "DIRECTIONS": " ".join(operator.directions),
            "FIGURE": operator.figure,
        }
        for operator in OPERATORS.values()
    ]
    shapes = [
        {"OPERATOR": operator.name, "CLASS": name, "SHAPES": "; ".join(map(shape_text, operator.shapes[name]))}
        for operator in OPERATORS.values()
        for name in SHAPE_CLASSES
        if name in operator.shapes
    ]
    return {"Operators": operators, "Shapes": shapes}
