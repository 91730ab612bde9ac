"""Choose and check which products are measured: precisions and shapes of the configuration. Importable without
torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp16_acc16")


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    planned_shapes(values)
    if not values["gemm"]["precisions"]:
        raise BadInput(f"gemm.precisions is empty; name some of {', '.join(PRECISIONS)}")
    for name in values["gemm"]["precisions"]:
        if name not in PRECISIONS:
            raise unknown_name("precision of gemm", name, PRECISIONS)
    return []


class Shape(msgspec.Struct, frozen=True):
    """Gives the sizes of a product: C (m x n) = A (m x k) B (k x n)."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


def planned_shapes(values: dict[str, Any]) -> dict[str, list[Shape]]:
    """Return by class the shapes, each in the first class that has it. The first class has the one that results are
    compared by."""
    given = values["gemm"]
    texts = {"headline": [given["headline"]], "standard": given["shapes"], "tuned": given["tuned_shapes"]}
    classes: dict[Shape, str] = {}
    for kind, of_kind in texts.items():
        for text in of_kind:
            if not re.fullmatch(r"[1-9]\d{0,6}x[1-9]\d{0,6}x[1-9]\d{0,6}", text):
                raise BadInput(f"gemm: {text!r} is not a shape; write MxNxK, for example 8192x8192x8192")
            classes.setdefault(Shape(*map(int, text.split("x"))), kind)
    return {kind: [shape for shape, its_kind in classes.items() if its_kind == kind] for kind in texts}
